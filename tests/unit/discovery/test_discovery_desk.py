"""Answers to queries: filters, limits, and who sees what."""

from __future__ import annotations

import pytest

from discoveries import LAB, OTHER, SECOND, announce, described, meta, request
from tensor_pool.discovery.access import AccessRule, Visibility
from tensor_pool.discovery.desk import DiscoveryDesk, check_request
from tensor_pool.discovery.index import StreamIndex
from tensor_pool.wire import decode, encode
from tensor_pool.wire.messages import DiscoveryRequest, DiscoveryResponse, DiscoveryStatus


@pytest.fixture
def index() -> StreamIndex:
    """Cameras `left` and `right`, and one of another driver."""
    index = StreamIndex(expiry_ns=3 * SECOND)
    for stream_id, name, tags in ((1, "left", "cam,lab"), (2, "right", "cam"), (3, "Left", "cam,LAB")):
        driver = OTHER if stream_id == 3 else LAB
        index.on_pool_announce(driver, announce(stream_id=stream_id, producer_id=stream_id * 10), now_ns=0)
        index.on_data_source_announce(driver, described(name, stream_id=stream_id), now_ns=0)
        index.on_meta(driver, meta(stream_id=stream_id, tags=tags, data_source_id=str(stream_id * 100)))
    return index


def given(
    desk: DiscoveryDesk, asked: DiscoveryRequest, *, now_ns: int = 1, max_bytes: int = 1 << 16
) -> DiscoveryResponse:
    answer = decode(desk.answer(asked, now_ns=now_ns, max_bytes=max_bytes))
    assert isinstance(answer, DiscoveryResponse)
    return answer


def found(index: StreamIndex, asked: DiscoveryRequest) -> list[int]:
    answer = given(DiscoveryDesk(index, Visibility(())), asked)
    assert (answer.request_id, answer.status) == (asked.request_id, DiscoveryStatus.OK)
    return [result.stream_id for result in answer.results]


@pytest.mark.req("DSC-5.1-3", "DSC-5.0-3", "DSC-5.2-1")
def test_a_query_without_filters_finds_everything(index: StreamIndex) -> None:
    assert found(index, request()) == [1, 2, 3]


@pytest.mark.req("DSC-5.1-4", "DSC-5.1-8", "DSC-5.1-10", "DSC-5.1-12", "DSC-5.1-13", "DSC-5.1-14")
@pytest.mark.parametrize(
    ("asked", "streams"),
    [
        (request(data_source_name="left"), [1]),
        (request(data_source_name="left "), []),
        (request(data_source_name="LEFT"), []),
        (request("cam"), [1, 2, 3]),
        (request("cam", "lab"), [1]),
        (request("cam", "cam", "LAB"), [3]),
        (request("CAM"), []),
        (request(stream_id=2), [2]),
        (request(producer_id=30), [3]),
        (request(data_source_id=100), [1]),
        (request(stream_id=1, data_source_name="right"), []),
        (request("lab", stream_id=1, producer_id=10, data_source_id=100, data_source_name="left"), [1]),
        (request("host:host-2"), [3]),
    ],
)
def test_filters_all_count(index: StreamIndex, asked: DiscoveryRequest, streams: list[int]) -> None:
    assert found(index, asked) == streams


@pytest.mark.req("DSC-5.2-5")
def test_a_result_has_all_its_tags(index: StreamIndex) -> None:
    answer = given(DiscoveryDesk(index, Visibility(())), request("lab"))
    assert {entry.tag for entry in answer.results[0].tags} == {"cam", "lab"}


@pytest.mark.req("DSC-5.2-19", "DSC-5.2-21")
def test_nothing_found_is_fine(index: StreamIndex) -> None:
    assert found(index, request(stream_id=99)) == []


@pytest.mark.req("DSC-5.2-14", "DSC-5.2-15", "DSC-5.2-22")
def test_more_than_fits_is_an_error_that_names_the_limit(index: StreamIndex) -> None:
    desk = DiscoveryDesk(index, Visibility(()), max_results=2)
    answer = given(desk, request())
    assert (answer.status, answer.results) == (DiscoveryStatus.ERROR, ())
    assert "more than 2 streams" in answer.error_message
    assert len(given(desk, request("cam", stream_id=2)).results) == 1


@pytest.mark.req("DSC-5.2-16", "DSC-5.2-22")
def test_an_answer_longer_than_a_message_is_an_error(index: StreamIndex) -> None:
    desk = DiscoveryDesk(index, Visibility(()))
    answer = given(desk, request(), max_bytes=200)
    assert (answer.status, answer.results) == (DiscoveryStatus.ERROR, ())
    assert "200" in answer.error_message
    assert len(answer.error_message) <= 1024
    assert len(given(desk, request()).results) == 3


@pytest.mark.req("DSC-5.2-20", "DSC-8-1", "DSC-12-2", "DSC-5.1-15", "DSC-5.1-16")
def test_who_may_not_see_a_stream_is_told_what_is_told_of_none(index: StreamIndex) -> None:
    rules = [AccessRule(clients=((1, 9),), names=("left",)), AccessRule(tags=("LAB",))]
    desk = DiscoveryDesk(index, Visibility(rules))

    def answer(client_id: int, name: str = "") -> tuple[str, list[int]]:
        told = given(desk, request(client_id=client_id, data_source_name=name))
        return told.status.name, [result.stream_id for result in told.results]

    assert answer(9) == ("OK", [1, 3])
    assert answer(10) == ("OK", [3])
    assert answer(10, "left") == answer(10, "never there") == ("NOT_FOUND", [])


@pytest.mark.req("DSC-12-2")
def test_a_policy_may_deny_aloud(index: StreamIndex) -> None:
    desk = DiscoveryDesk(index, Visibility([AccessRule(names=("nothing",))]), denies=True)
    answer = given(desk, request())
    assert (answer.status, answer.results) == (DiscoveryStatus.ERROR, ())


@pytest.mark.req("DSC-3-1")
def test_an_answer_is_how_it_was_when_it_was_asked(index: StreamIndex) -> None:
    desk = DiscoveryDesk(index, Visibility(()))
    before = given(desk, request(stream_id=1))
    index.on_pool_announce(LAB, announce(stream_id=1, epoch=9), now_ns=2)
    assert before.results[0].epoch == 5
    assert given(desk, request(stream_id=1), now_ns=2).results[0].epoch == 9


@pytest.mark.req("DSC-5.1-5", "DSC-5.1-6")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"response_channel": ""}, "no_response_channel"),
        ({"response_channel": "", "response_stream_id": 0}, "no_response_channel"),
        ({"response_stream_id": 0}, "no_response_stream"),
        ({"response_channel": "http://nowhere"}, "bad_response_channel"),
        ({"response_channel": "aeron-spy:aeron:ipc"}, "bad_response_channel"),
        ({"response_channel": "aeron:udp?endpoint=nobody"}, "bad_response_channel"),
    ],
)
def test_requests_that_nobody_could_be_answered(changes: dict[str, object], reason: str | None) -> None:
    assert check_request(request(**changes)) == reason


def test_answers_are_the_bytes_that_the_codec_makes(index: StreamIndex) -> None:
    data = DiscoveryDesk(index, Visibility(())).answer(request(), now_ns=1, max_bytes=1 << 16)
    assert data == encode(decode(data))
