"""The lease book against a model that is too simple to be wrong."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tensor_pool.driver.leases import Lease, LeaseBook
from tensor_pool.wire.messages import LeaseRevokeReason, Role

LEASE_NS = 100
STREAMS = st.integers(1, 3)
CLIENTS = st.integers(1, 6)
ROLES = st.sampled_from(Role)


class LeaseBookMachine(RuleBasedStateMachine):
    """Everything that a driver does with its book, in any order."""

    @initialize()
    def start(self) -> None:
        self.book = LeaseBook(lease_ns=LEASE_NS, first_id=1)
        self.now_ns = 1_000
        self.model: dict[int, tuple[int, int, Role, int]] = {}  # stream, client, role, expiry by id
        self.seen: set[int] = set()
        self.epochs: dict[int, int] = {}

    @rule(stream_id=STREAMS, client_id=CLIENTS, role=ROLES)
    def grant(self, stream_id: int, client_id: int, role: Role) -> None:
        taken = any(
            client == client_id or (role is other is Role.PRODUCER and stream == stream_id)
            for stream, client, other, _ in self.model.values()
        )
        try:
            lease = self.book.grant(
                stream_id=stream_id, client_id=client_id, role=role, epoch=1, now_ns=self.now_ns
            )
        except ValueError:
            assert taken
            return
        assert not taken
        assert lease.lease_id not in self.seen
        self.seen.add(lease.lease_id)
        self.model[lease.lease_id] = (stream_id, client_id, role, self.now_ns + LEASE_NS)

    @rule(data=st.data(), stream_id=STREAMS, client_id=CLIENTS, role=ROLES)
    def keep_alive(self, data: st.DataObject, stream_id: int, client_id: int, role: Role) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.seen)) if self.seen else st.just(99))
        known = self.model.get(lease_id)
        if known is not None and data.draw(st.booleans()):
            stream_id, client_id, role = known[:3]
        fits = known is not None and known[:3] == (stream_id, client_id, role)
        assert self.book.keep_alive(lease_id, stream_id, client_id, role, now_ns=self.now_ns) == fits
        if fits:
            self.model[lease_id] = (stream_id, client_id, role, self.now_ns + LEASE_NS)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), reason=st.sampled_from(LeaseRevokeReason))
    def end(self, data: st.DataObject, reason: LeaseRevokeReason) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.model)))
        lease = self.book.get(lease_id)
        assert lease is not None
        self.book.end(lease, reason)
        assert self.book.end_reason(lease_id) is reason
        del self.model[lease_id]

    @rule(passed_ns=st.integers(0, 150))
    def time_passes(self, passed_ns: int) -> None:
        self.now_ns += passed_ns

    @rule()
    def expire(self) -> None:
        expired = self.book.expire(now_ns=self.now_ns)
        over = {lease_id for lease_id, known in self.model.items() if known[3] <= self.now_ns}
        assert {lease.lease_id for lease in expired} == over
        expiries = [lease.expiry_ns for lease in expired]
        assert expiries == sorted(expiries)
        for lease_id in over:
            assert self.book.end_reason(lease_id) is LeaseRevokeReason.EXPIRED
            del self.model[lease_id]

    @rule(later_ns=st.integers(0, 300))
    def postpone(self, later_ns: int) -> None:
        until_ns = self.now_ns + later_ns
        self.book.postpone(until_ns)
        self.model = {
            lease_id: (*known[:3], max(known[3], until_ns)) for lease_id, known in self.model.items()
        }

    @rule(stream_id=STREAMS)
    def move(self, stream_id: int) -> None:
        self.book.move(stream_id, 2)
        assert {lease.epoch for lease in self.book.of_stream(stream_id)} <= {2}

    @invariant()
    def agrees_with_the_model(self) -> None:
        def known(lease: Lease) -> tuple[int, int, Role, int]:
            return (lease.stream_id, lease.client_id, lease.role, lease.expiry_ns)

        assert {lease.lease_id: known(lease) for lease in self.book} == self.model
        assert [lease.lease_id for lease in self.book] == sorted(self.model)
        producers = {s: i for i, (s, _, role, _) in self.model.items() if role is Role.PRODUCER}
        assert self.book.producer_count == len(producers)
        for stream_id in (1, 2, 3):
            producer = self.book.producer_of(stream_id)
            assert (None if producer is None else producer.lease_id) == producers.get(stream_id)
            of_stream = [i for i, (s, *_) in sorted(self.model.items()) if s == stream_id]
            assert [lease.lease_id for lease in self.book.of_stream(stream_id)] == of_stream
            assert self.book.count_of_stream(stream_id) == len(of_stream)
        for client_id in range(1, 7):
            lease = self.book.of_client(client_id)
            expected = [i for i, (_, c, *_) in self.model.items() if c == client_id]
            assert ([] if lease is None else [lease.lease_id]) == expected
        assert self.book.next_expiry_ns() == min((known[3] for known in self.model.values()), default=None)


TestLeaseBook = LeaseBookMachine.TestCase
