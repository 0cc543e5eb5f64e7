"""``tpool counters``, ``errors`` and ``tap`` beside a real media driver."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_pool import wire
from tensor_pool.errors import TransportError
from tensor_pool.runtime import CounterType
from tensor_pool.transport import AeronClient, AeronCounters, EmbeddedMediaDriver
from tensor_pool.transport.media import temporary_aeron_dir
from tensor_pool.wire.messages import QosConsumer, QosProducer

TPOOL = Path(sys.executable).with_name("tpool")


class TestCounters:
    def test_ours_and_aerons(self, tpool: Callable, media: EmbeddedMediaDriver, client: AeronClient) -> None:
        work = AeronCounters(client).create(CounterType.AGENT_WORK, "camera: work")
        work.add(5)
        everything = json.loads(tpool("counters", "--aeron-dir", media.aeron_dir, "--format", "json").out)
        (ours,) = json.loads(
            tpool("counters", "--ours", "--aeron-dir", media.aeron_dir, "--format", "json").out
        )

        assert (ours["kind"], ours["value"], ours["label"]) == ("work", 5, "camera: work")
        assert ours["owner_id"] == client.client_id
        assert ours in everything
        assert any("version=" in row["label"] for row in everything)

    def test_watching_shows_rates(
        self, tpool: Callable, media: EmbeddedMediaDriver, client: AeronClient
    ) -> None:
        work = AeronCounters(client).create(CounterType.AGENT_WORK, "camera: work")
        work.add(5)
        arguments = ["--ours", "--watch", "--count", "2", "--interval", "0.1", "--format", "jsonl"]
        outcome = tpool("counters", "--aeron-dir", media.aeron_dir, *arguments)
        first, second = (json.loads(line) for line in outcome.out.splitlines())

        assert (first["per_second"], second["per_second"]) == (None, 0.0)
        assert first["at"] < second["at"]

    def test_without_a_media_driver_the_exit_code_is_3(self, tpool: Callable) -> None:
        outcome = tpool("counters", "--aeron-dir", temporary_aeron_dir())

        assert outcome.code == 3
        assert outcome.err.startswith("error: no media driver serves ")
        assert "  try: " in outcome.err


class TestErrors:
    def test_none(self, tpool: Callable, media: EmbeddedMediaDriver) -> None:
        assert tpool("errors", "--aeron-dir", media.aeron_dir) == (0, "no errors\n", "")

    def test_the_media_drivers_and_agents(
        self, tpool: Callable, media: EmbeddedMediaDriver, client: AeronClient
    ) -> None:
        for _ in range(2):
            with pytest.raises(TransportError):
                client.native.add_publication("aeron:udp?endpoint=127.0.0.1:40123|mtu=17", 1, 5_000_000_000)
        owners = ("camera", "viewer")
        failing, fine = (
            AeronCounters(client).create(CounterType.AGENT_ERRORS, f"{owner}: errors") for owner in owners
        )
        failing.add(4)
        outcome = tpool("errors", "--aeron-dir", media.aeron_dir, "--format", "json")
        agent, logged = json.loads(outcome.out)

        assert outcome.code == 1
        assert (agent["source"], agent["count"], agent["first"]) == ("camera", 4, None)
        assert (logged["source"], logged["count"]) == ("media driver", 2)
        assert "mtu" in logged["text"].lower()
        assert logged["first"] <= logged["last"]
        assert fine.value == 0, "and so it is not listed"

    def test_without_a_media_driver_the_exit_code_is_3(self, tpool: Callable) -> None:
        assert tpool("errors", "--aeron-dir", temporary_aeron_dir()).code == 3


class TestTap:
    def start(self, media: EmbeddedMediaDriver, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [TPOOL, "tap", "--aeron-dir", media.aeron_dir, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_messages_of_another_process_are_decoded_and_filtered(
        self, media: EmbeddedMediaDriver, client: AeronClient
    ) -> None:
        publication = client.add_publication("aeron:ipc", 1200)
        arguments = ("qos", "--type", "qosproducer", "--count", "2", "--format", "jsonl")
        process = self.start(media, *arguments)
        try:
            assert publication.wait_connected(20_000)
            publication.offer(b"somebody else's bytes")
            publication.offer(
                wire.encode(
                    QosConsumer(
                        stream_id=1,
                        consumer_id=2,
                        epoch=3,
                        last_seq_seen=4,
                        drops_gap=0,
                        drops_late=0,
                        mode=wire.messages.Mode.STREAM,
                    )
                )
            )
            for seq in (4, 5):
                publication.offer(
                    wire.encode(QosProducer(stream_id=1, producer_id=2, epoch=3, current_seq=seq))
                )
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        rows = [json.loads(line) for line in out.splitlines()]

        assert process.returncode == 0, err
        assert [row["fields"]["current_seq"] for row in rows] == [4, 5]
        assert {row["source"] for row in rows} == {"qos"}
        assert err.startswith("4 messages, 2 shown, ")

    def test_its_subscriptions_can_not_hold_back_anybody(
        self, tpool: Callable, media: EmbeddedMediaDriver, client: AeronClient
    ) -> None:
        publication = client.add_publication("aeron:ipc", 1000)
        process = self.start(media, "control", "--seconds", "60")
        try:
            assert publication.wait_connected(20_000)
            labels = [
                row["label"]
                for row in json.loads(
                    tpool("counters", "--type", "4", "--format", "json", "--aeron-dir", media.aeron_dir).out
                )
            ]
        finally:
            process.kill()
            process.communicate()

        assert labels
        assert all("tether=false" in label for label in labels)

    def test_it_ends_after_its_time_with_nothing_seen(
        self, tpool: Callable, media: EmbeddedMediaDriver
    ) -> None:
        outcome = tpool("tap", "--seconds", "0.1", "--format", "json", "--aeron-dir", media.aeron_dir)

        assert (outcome.code, outcome.out) == (0, "[]\n")
        assert outcome.err.startswith("0 messages, 0 shown")

    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            (["--type", "QosProduser"], "did you mean QosProducer"),
            (["--format", "json"], "--count or --seconds"),
            (["nothing"], "nothing"),
        ],
    )
    def test_wrong_usage_is_exit_code_2(self, tpool: Callable, arguments: list[str], word: str) -> None:
        outcome = tpool("tap", *arguments)

        assert outcome.code == 2
        assert word in outcome.err

    def test_without_a_media_driver_it_says_so_at_once(self, tpool: Callable) -> None:
        outcome = tpool("tap", "--aeron-dir", temporary_aeron_dir())

        assert outcome.code == 3
        assert "tpool up --aeron-dir" in outcome.err
