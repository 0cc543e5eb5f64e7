"""Counter types, cells and sets."""

import pytest

from tensor_pool.runtime import Counter, CounterSet, CounterType, LocalCounters
from tensor_pool.runtime.counters import FIRST_TYPE_ID


class RecordingFactory:
    """Says what was created, and fails where told to."""

    def __init__(self, *, fail_at: int | None = None) -> None:
        self.created: list[tuple[CounterType, str, bytes]] = []
        self.cells: list[RecordingCell] = []
        self._fail_at = fail_at

    def create(self, kind: CounterType, label: str, *, key: bytes = b"") -> Counter:
        if len(self.created) == self._fail_at:
            raise ConnectionError("no media driver")
        self.created.append((kind, label, key))
        self.cells.append(RecordingCell())
        return self.cells[-1]


class RecordingCell:
    def __init__(self) -> None:
        self.value = 0
        self.closed = 0

    def add(self, amount: int = 1, /) -> None:
        self.value += amount

    def set(self, value: int, /) -> None:
        self.value = value

    def close(self) -> None:
        self.closed += 1


class TestCounterType:
    def test_ids_are_unique_and_clear_of_aerons(self) -> None:
        ids = [kind.type_id for kind in CounterType]

        assert len(set(ids)) == len(ids)
        assert min(ids) == FIRST_TYPE_ID >= 1000  # Aeron keeps everything below 1000 for itself

    def test_each_has_a_name_and_says_what_it_counts(self) -> None:
        labels = [kind.label for kind in CounterType]

        assert len(set(labels)) == len(labels)
        assert all(kind.doc.endswith(".") for kind in CounterType)


class TestLocalCounters:
    def test_cells_count_by_themselves(self) -> None:
        factory = LocalCounters()
        first = factory.create(CounterType.AGENT_WORK, "a: work")
        second = factory.create(CounterType.AGENT_WORK, "b: work", key=b"\x01")
        first.add()
        first.add(41)
        second.set(7)

        assert (first.value, second.value) == (42, 7)

    def test_close_may_be_called_twice_and_keeps_the_value(self) -> None:
        cell = LocalCounters().create(CounterType.AGENT_WORK, "a: work")
        cell.add(3)
        cell.close()
        cell.close()

        assert cell.value == 3


class TestCounterSet:
    KINDS = (CounterType.AGENT_CYCLES, CounterType.AGENT_ERRORS)

    def test_asks_the_factory_once_a_kind_with_the_owner_in_the_label(self) -> None:
        factory = RecordingFactory()
        counters = CounterSet(factory, "driver", self.KINDS)

        assert factory.created == [
            (CounterType.AGENT_CYCLES, "driver: cycles", b""),
            (CounterType.AGENT_ERRORS, "driver: errors", b""),
        ]
        assert list(counters) == list(self.KINDS)

    def test_snapshot_has_all_values_by_name(self) -> None:
        with CounterSet(LocalCounters(), "driver", self.KINDS) as counters:
            counters[CounterType.AGENT_ERRORS].add(2)

            assert counters.snapshot() == {"cycles": 0, "errors": 2}

    def test_a_kind_that_was_not_asked_for_is_a_key_error(self) -> None:
        with pytest.raises(KeyError):
            CounterSet(LocalCounters(), "driver", self.KINDS)[CounterType.AGENT_WORK]

    def test_close_gives_every_cell_back(self) -> None:
        factory = RecordingFactory()
        with CounterSet(factory, "driver", self.KINDS):
            pass

        assert [cell.closed for cell in factory.cells] == [1, 1]

    def test_a_failure_half_way_gives_back_what_was_made(self) -> None:
        factory = RecordingFactory(fail_at=1)

        with pytest.raises(ConnectionError):
            CounterSet(factory, "driver", self.KINDS)
        assert [cell.closed for cell in factory.cells] == [1]
