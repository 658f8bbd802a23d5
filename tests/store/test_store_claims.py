"""Claims are leases, a budget is shared, a verdict in doubt gives way to the second one; on every kind of database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotune.core.candidate import Candidate
from autotune.core.outcome import DOUBTFUL, Outcome
from autotune.core.whereabouts import gone, place, started
from autotune.store import Owner, Store, open_store
from autotune.store.claims import BEATS, LEASE_S, LOOKS, Share, Terms
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, failed, ok

SHORT = Terms(lease_s=-1.0)  # over as soon as it is made


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def test_a_dead_workers_claims_are_taken_over_within_a_minute() -> None:
    """By the lease, at the worst: it has just been renewed, and the others have just looked."""
    assert LEASE_S + LEASE_S / LOOKS < 60
    assert LEASE_S / BEATS > 5  # a heartbeat may wait for a frozen writer, and be late, without losing its claims


def test_a_claim_that_is_not_renewed_is_taken_over(store: Store) -> None:
    lost, alive, mine = Owner("lost", "elsewhere", 1), Owner("alive", "elsewhere", 2), Owner.here()
    for number, owner in ((1, lost), (2, alive)):
        store.claim(H200, FORWARD, candidate(number), owner, SHORT)
    assert store.heartbeat(alive) == 1
    standing = {claim.candidate: (claim.owner.id, claim.free) for claim in store.standing_claims(H200, FORWARD, mine)}
    assert standing == {candidate(1): ("lost", True), candidate(2): ("alive", False)}
    assert store.claim(H200, FORWARD, candidate(1), mine).granted
    assert store.claim(H200, FORWARD, candidate(2), mine).state == "held"
    assert store.heartbeat(lost) == 0


def elsewhere(owner: Owner, **changes: object) -> Owner:
    return replace(owner, id=f"like {owner.id}", **changes)  # type: ignore[arg-type]


def test_who_is_known_to_be_dead_is_not_waited_for(store: Store) -> None:
    """In the same PID namespace of the same boot only: elsewhere the number may be anybody's."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    mine = Owner.here()
    dead = elsewhere(mine, pid=child.pid, started=started(os.getpid()))
    reused = elsewhere(mine, started=mine.started - 1)  # another process has this number now
    container = elsewhere(mine, pid=child.pid, place="this boot pid:[1]")
    unknown = elsewhere(mine, pid=child.pid, place="")
    for number, (owner, free) in enumerate(
        [(mine, False), (dead, True), (reused, True), (container, False), (unknown, False)]
    ):
        store.claim(H200, FORWARD, candidate(number), owner)
        asker = replace(mine, id="asker", place="" if owner is unknown else mine.place)
        [*_, claim] = store.standing_claims(H200, FORWARD, asker)
        assert (claim.owner, claim.free) == (owner, free)
        assert store.claim(H200, FORWARD, candidate(number), asker).granted is free


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    assert place().count(" ") == 1
    mine = os.getpid()
    assert started(mine) > 0
    assert not gone(mine, started(mine))
    assert gone(mine, started(mine) + 1)
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert gone(child.pid, 0)  # it has ended, though nobody has waited for it
    child.wait()
    assert gone(child.pid, 0)
    assert not gone(1, 0)


def ours(found: Candidate) -> bool:
    return found.template == "simt"


def test_a_budget_counts_what_is_recorded_and_what_is_claimed(store: Store) -> None:
    one, two = Owner.here(), Owner.here()
    first = store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0))

    def ask(number: int, owner: Owner, *, known: int, read_to: int, limit: int = 3) -> str:
        terms = Terms(share=Share(limit, known, read_to, ours))
        return store.claim(H200, FORWARD, candidate(number), owner, terms).state

    assert ask(1, one, known=1, read_to=0) == "behind"
    assert ask(1, one, known=1, read_to=first) == "granted"
    assert ask(2, two, known=1, read_to=first) == "granted"
    assert ask(3, two, known=1, read_to=first) == "full"
    assert ask(3, two, known=1, read_to=first, limit=4) == "granted"
    assert ask(1, one, known=1, read_to=first) == "granted"  # its own: counted already
    store.claim(H200, FORWARD, candidate(9, template="another"), two)  # of no concern
    assert ask(4, two, known=1, read_to=first, limit=5) == "granted"
    store.record(H200, FORWARD, candidate(1), SOURCE, ok(1.0))
    assert ask(5, two, known=1, read_to=first, limit=9) == "behind"


def test_what_is_taken_over_is_in_the_budget_already(store: Store) -> None:
    lost, mine = Owner("lost", "elsewhere", 1), Owner.here()
    store.claim(H200, FORWARD, candidate(0), lost, SHORT)
    terms = Terms(share=Share(1, 0, 0, ours))
    assert store.claim(H200, FORWARD, candidate(1), mine, terms).state == "full"
    assert store.claim(H200, FORWARD, candidate(0), mine, terms).state == "granted"


def test_a_claim_on_one_candidate_is_given_up(store: Store) -> None:
    mine, other = Owner.here(), Owner("other", "elsewhere", 2)
    for i in (1, 2):
        store.claim(H200, FORWARD, candidate(i), mine)
    assert store.release(mine, FORWARD, candidate(1)) == 1
    assert store.claim(H200, FORWARD, candidate(1), other).granted
    assert store.claim(H200, FORWARD, candidate(2), other).state == "held"


def test_one_names_the_winner_at_a_time(store: Store) -> None:
    one, two = Owner.here(), Owner.here()
    assert store.claim(H200, FORWARD, None, one).granted
    assert store.claim(H200, FORWARD, None, one).granted
    assert store.claim(H200, FORWARD, None, two).state == "held"
    assert store.claim(H200, FORWARD, candidate(0), two).granted  # which hinders no trial
    assert [claim.candidate for claim in store.standing_claims(H200, FORWARD, one)] == [candidate(0)]
    store.release(one)
    assert store.claim(H200, FORWARD, None, two).granted


@pytest.mark.parametrize("outcome", DOUBTFUL)
def test_a_verdict_in_doubt_gives_way_to_the_second_one(store: Store, outcome: Outcome) -> None:
    mine, drivers = Owner.here(), ["570.1"]
    first = store.record(H200, FORWARD, candidate(0), SOURCE, failed(outcome))
    assert store.claim(H200, FORWARD, candidate(0), mine, Terms(drivers)).measurement_id == first
    assert store.claim(H200, FORWARD, candidate(0), mine, Terms(drivers, again=True)).granted
    second = store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0))
    assert second > first  # who follows by id hears of it
    [record] = store.measurements()
    assert (record.id, record.measurement.outcome, record.measurement.attempts) == (second, Outcome.OK, 2)
    winner = store.winner(FORWARD, "h200")
    assert winner is not None
    assert winner.record.id == second
    assert store.record(H200, FORWARD, candidate(0), SOURCE, failed(outcome)) == second


@pytest.mark.parametrize("outcome", DOUBTFUL)
def test_a_second_verdict_stands(store: Store, outcome: Outcome) -> None:
    mine = Owner.here()
    for _ in range(2):
        number = store.record(H200, FORWARD, candidate(0), SOURCE, failed(outcome))
    [record] = store.measurements()
    assert (record.id, record.measurement.outcome, record.measurement.attempts) == (number, outcome, 2)
    assert store.claim(H200, FORWARD, candidate(0), mine, Terms(again=True)).state == "measured"
    assert store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0)) == number


def test_forgotten_records_are_evaluated_anew(store: Store) -> None:
    crashed = store.record(H200, FORWARD, candidate(0), SOURCE, failed(Outcome.CRASH))
    timeout = store.record(H200, FORWARD, candidate(1), SOURCE, failed(Outcome.TIMEOUT))
    slow = store.record(H200, FORWARD, candidate(2), SOURCE, ok(3.0))
    fast = store.record(H200, FORWARD, candidate(3), SOURCE, ok(1.0))
    found = store.forget({"outcome": [Outcome.CRASH, Outcome.TIMEOUT]}, dry=True)
    assert (dict(found.outcomes), found.replaced, found.gone) == ({"crash": 1, "timeout": 1}, 0, 0)
    assert [record.id for record in store.measurements()] == [crashed, timeout, slow, fast]
    assert store.forget({"outcome": [Outcome.CRASH, Outcome.TIMEOUT]}, [timeout]).outcomes == {"timeout": 1}
    assert store.claim(H200, FORWARD, candidate(0), Owner.here()).state == "measured"
    assert store.claim(H200, FORWARD, candidate(1), Owner.here()).state == "granted"
    assert store.forget({"problem": FORWARD.key, "device": "h100"}).outcomes == {}
    found = store.forget({"problem": FORWARD.key, "device": "h200"}, [fast, crashed])
    assert (dict(found.outcomes), found.replaced, found.gone) == ({"crash": 1, "ok": 1}, 1, 0)
    winner = store.winner(FORWARD, "h200")
    assert winner is not None
    assert winner.record.id == slow
    found = store.forget({"op": "forward", "template": "simt"})
    assert (dict(found.outcomes), found.replaced, found.gone) == ({"ok": 1}, 0, 1)
    assert store.winner(FORWARD, "h200") is None
    assert list(store.measurements()) == []
