"""A Parzen estimator that compares valid configurations only, and only those that nobody has tried.

The idea is that of the tree-structured Parzen estimator (Bergstra et al., Algorithms for Hyper-Parameter Optimization,
2011): propose where good trials are dense and bad ones are not. Optuna's draws its candidates from the density of the
good ones, so that in a constrained space a third of them are not valid or known; here candidates are drawn from the
space, with all neighbours of the fastest trials beside them. A Gaussian process ranks them as well.
"""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autotune.tuning.encoding import Tree
from autotune.tuning.gaussian import Rows, log_improvement
from autotune.tuning.joint_space import Families, Family, Seen
from autotune.tuning.strategy import Strategy
from autotune.tuning.study import WITHDRAWN, OptunaStrategy, accept_experiments
from autotune.tuning.tried import EQUAL, Branch, Expected, Tried

STARTUP = 20
"""Trials, finished or under way, before which candidates are random."""

APART = 64
"""Random candidates of which the one least like all earlier ones begins."""

POOL = 600
"""Random candidates that are compared for one proposal, in all branches together."""

FEWEST = 50
"""Of them in any one branch."""

FASTEST = 5
"""Trials of which all neighbours (one parameter changed) are compared, too."""

SHARES = (0.05, 0.1, 0.2)
"""How many trials are taken as good: for each proposal one of these shares, at random; at least 2 and at most 25."""

_FEW = 2  # results from which nothing is expected yet
_MOST_BAD = 1000  # bad trials that are looked at; of more, a random thousand says as much
_MOST_VALUES = 256  # of an integer parameter that is treated as a list


class ParzenSampler(BaseSampler):
    """For Optuna: asks valid, untried combinations of categorical parameters and short ranges of integers.

    Which trials are good, bad, failed or under way is read from the study at every ask. Trials under way count as good
    or bad by what is expected of them, and what is like them promises less, so that several workers ask for different
    things. Parameters that are no lists are sampled at random.

    Args:
        branches: the search space. Left out, it is taken from the study's trials: each set of parameters that
            occurred in one of them is a branch.
        valid: without `branches`, tells whether parameters are worth a trial; default: all are.
        startup: trials, finished or under way, before which proposals are random.
        seed: makes the proposals repeatable.
    """

    def __init__(
        self, branches: Sequence[Branch] = (), *, valid: Callable[[Mapping[str, Any]], bool] | None = None,
        startup: int = STARTUP, seed: int | None = None,
    ) -> None:  # fmt: skip
        self._branches, self._valid, self._startup = tuple(branches), valid, startup
        self._rng = np.random.default_rng(seed)
        self._random = RandomSampler(seed)
        self._histories: WeakKeyDictionary[Study, _History] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        with self._lock:
            branches = self._follow(study).branches
            return {name: d for branch in branches for name, d in branch.of.distributions.items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space or trial.system_attrs.get("fixed_params"):  # the latter: somebody else has chosen
            return {}
        with self._lock:
            history = self._follow(study)
            known = history.told > 0 and sum(tried.count for tried in history.branches) >= self._startup
            tried, row = history.best(self._rng) if known else history.random(self._rng)
            values = tried.of.values
            return {name: values[name][place] for name, place in zip(values, row, strict=True)}

    def promise(self, study: Study, candidates: Sequence[Mapping[str, Any]]) -> list[float] | None:
        """How promising candidates under way are by what is known now, compared with each other: more is better.

        None as long as too little is known.
        """
        with self._lock:
            history = self._follow(study)
            if history.told < self._startup:
                return None
            found = [history.place(parameters) for parameters in candidates]
            pools = {
                tried: np.array([row for _, row in group], dtype=np.int64)
                for tried, group in itertools.groupby(sorted(found, key=lambda f: id(f[0])), key=lambda f: f[0])
            }
            scores = history.scores(pools, self._rng, waiting=False)
            ordered = [tried for tried in history.branches if tried in pools]
            taken = {tried: iter(score.tolist()) for tried, score in zip(ordered, scores, strict=True)}
            return [next(taken[tried]) for tried, _ in found]

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _follow(self, study: Study) -> "_History":
        """What the study has tried so far.

        Raises:
            ValueError: the study has several objectives.
        """
        if len(study.directions) > 1:
            raise ValueError("ParzenSampler minimises or maximises one value; this study has several")
        if study not in self._histories:
            infer = None if self._branches else self._inferred
            self._histories[study] = _History([Tried(branch) for branch in self._branches], infer)
        history = self._histories[study]
        history.read(study)
        return history

    def _inferred(self, trial: FrozenTrial) -> Branch | None:
        """The branch of a finished trial's parameters, those that are lists; None where there are none."""
        listed = {name: values for name, d in sorted(trial.distributions.items()) if (values := _values_of(d))}
        if not listed:
            return None
        cards, names = np.array([len(values) for values in listed.values()]), list(listed)

        def holds(rows: Rows) -> NDArray[np.bool_]:
            valid = self._valid
            if valid is None:
                return np.ones(len(rows), dtype=bool)
            every = ({n: listed[n][i] for n, i in zip(names, row, strict=True)} for row in rows.tolist())
            return np.fromiter(map(valid, every), dtype=bool, count=len(rows))

        def draw(rng: np.random.Generator, count: int) -> Rows:
            size = math.prod(cards.tolist())
            if size <= count:
                rows = np.stack(np.unravel_index(np.arange(size), cards), axis=1)
            else:
                rows = np.unique(rng.integers(0, cards, (count, len(cards))), axis=0)
            return rows[holds(rows)]

        return Branch(listed, {name: trial.distributions[name] for name in listed}, draw, holds)


def _values_of(distribution: BaseDistribution) -> tuple[Any, ...]:
    """The values of a distribution that is a list, in effect; else nothing."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if not isinstance(distribution, IntDistribution):
        return ()
    values = range(distribution.low, distribution.high + 1, distribution.step)
    return tuple(values) if len(values) <= _MOST_VALUES else ()


@dataclass
class _History:
    """A study's trials by branch. Those that have ended are read once."""

    branches: list[Tried]
    infer: Callable[[FrozenTrial], Branch | None] | None  # makes branches of trials that fit none
    told: int = 0
    _read: int = 0
    _open: dict[int, tuple[Tried, int] | None] = field(default_factory=dict)  # by number; None: not entered yet

    def read(self, study: Study) -> None:
        """Take in what the study knows since the last call."""
        trials = study.get_trials(deepcopy=False)
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        for number in (*self._open, *range(self._read, len(trials))):
            entered, trial = self._open.pop(number, None), trials[number]
            over = trial.state.is_finished()
            if WITHDRAWN in trial.user_attrs:
                self._remove(entered)
                continue
            if entered is None and trial.params:
                entered = self._enter(trial, over)
            if not over:
                self._open[number] = entered
            elif entered is not None:
                tried, place = entered
                tried.finish(place, _value(trial, sign))
                self.told += 1
        self._read = len(trials)

    def _remove(self, entered: tuple[Tried, int] | None) -> None:
        """Forget a trial that was given up before anything was known of it; the last of its branch takes its place."""
        if entered is None:
            return
        tried, place = entered
        last = tried.remove(place)
        for number, other in self._open.items():
            if other == (tried, last):
                self._open[number] = entered
                break

    def place(self, parameters: Mapping[str, Any]) -> tuple[Tried, list[int]]:
        """The branch and the row of parameters of one of its trials."""
        rows = [(tried, row) for tried in self.branches if (row := tried.row(parameters)) is not None]
        return max(rows, key=lambda found: len(found[1]))

    def _enter(self, trial: FrozenTrial, over: bool) -> tuple[Tried, int] | None:
        """A place for a trial among those of its branch: the one with most of its parameters."""
        fitting = [tried for tried in self.branches if tried.row(trial.params) is not None]
        branch = self.infer(trial) if self.infer is not None and over else None
        if branch is not None and all(len(branch.values) > len(tried.cards) for tried in fitting):
            self.branches.append(Tried(branch))
            fitting.append(self.branches[-1])
        tried = max(fitting, key=lambda tried: len(tried.cards), default=None)
        row = None if tried is None else tried.row(trial.params)
        return None if tried is None or row is None else (tried, tried.add(row, math.nan))

    def random(self, rng: np.random.Generator) -> tuple[Tried, list[int]]:
        """Of random valid rows of a random branch, untried if there are any, the one least like what was tried."""
        for count in (APART, POOL, 64 * POOL):
            for place in rng.permutation(len(self.branches)).tolist():
                tried = self.branches[place]
                rows = self._likely(tried, tried.untried(tried.of.draw(rng, count)))[:APART]
                if len(rows):
                    return tried, rows[int(tried.density(rows, np.arange(tried.count)).argmin())].tolist()
        tried = self.branches[int(rng.integers(len(self.branches)))]
        return tried, _any(tried.of.draw(rng, POOL), rng)

    def best(self, rng: np.random.Generator) -> tuple[Tried, list[int]]:
        """The untried candidate that is most like good trials and least like bad ones, and may well be the fastest."""
        values = np.concatenate([tried.values for tried in self.branches])
        ranked = np.argsort(values, kind="stable")[:FASTEST]
        fastest = ranked[np.isfinite(values[ranked])]
        pools: list[tuple[Tried, Rows]] = []
        for tried, start in self._places():
            near = tried.neighbours(_inside(fastest, start, tried))
            if len(near) > POOL:
                near = near[rng.choice(len(near), POOL, replace=False, shuffle=False)]
            pool = np.concatenate([tried.of.draw(rng, max(POOL // len(self.branches), FEWEST)), near])
            rows = self._likely(tried, tried.untried(pool))
            if len(rows):
                pools.append((tried, rows))
        if not pools:
            return self.random(rng)
        scores = self.scores(dict(pools), rng)
        best = max(float(score.max()) for score in scores)
        tops = [
            (tried, row)
            for (tried, rows), score in zip(pools, scores, strict=True)
            for row in rows[score == best].tolist()
        ]
        return tops[int(rng.integers(len(tops)))]

    def scores(
        self, pools: Mapping[Tried, Rows], rng: np.random.Generator, *, waiting: bool = True
    ) -> list[NDArray[np.float64]]:
        """How promising rows are, by comparison with each other: two ranks, from 0 to 1, are added.

        One is the ratio of the densities of good and of bad trials, the other the improvement that a process expects:
        they err in different places. `waiting`: whether to look for something else than what is under way.
        """
        values = np.concatenate([tried.values for tried in self.branches])
        scaled = _scaled(values)
        expected = {
            tried: tried.expected(pools[tried], scaled[start : start + tried.count], rng, waiting=waiting)
            for tried, start in self._places() if tried in pools
        }  # fmt: skip
        good, bad = self._parted(values, scaled, expected, rng, waiting=waiting)
        ratios = [
            self._log(tried, pools[tried], _inside(good, start, tried), len(good))
            - self._log(tried, pools[tried], _inside(bad, start, tried), len(bad))
            for tried, start in self._places() if tried in pools
        ]  # fmt: skip
        best = min(of.best for of in expected.values())
        mean = np.concatenate([of.means for of in expected.values()])
        deviation = np.concatenate([of.deviations for of in expected.values()])
        scores = _ranks(np.concatenate(ratios)) + _ranks(log_improvement(best, mean, deviation))
        return np.split(scores, np.cumsum([len(part) for part in ratios])[:-1])

    def _parted(
        self, values: NDArray[np.float64], scaled: NDArray[np.float64], expected: Mapping[Tried, Expected],
        rng: np.random.Generator, *, waiting: bool,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
        """Places of good trials and of bad ones, by their values; of those under way by the values that are expected.

        What is under way and nobody can say anything of counts as bad; none does without `waiting`.
        """
        worth = np.where(np.isposinf(values), np.inf, scaled)
        if waiting and self.told > _FEW:
            for tried, start in self._places():
                if tried in expected:
                    worth[start + expected[tried].pending] = expected[tried].hopes
        ranked = np.argsort(worth, kind="stable")
        share = SHARES[int(rng.integers(len(SHARES)))]
        count = min(max(2, min(25, math.ceil(share * self.told))), int(np.isfinite(worth).sum()))
        good, bad = ranked[:count], ranked[count:]
        if not waiting:
            bad = bad[~np.isnan(values[bad])]
        if len(bad) > _MOST_BAD:
            open_ones = bad[np.isnan(values[bad])]
            bad = np.union1d(open_ones, rng.choice(bad, _MOST_BAD, replace=False, shuffle=False))
        return good, bad

    def _likely(self, tried: Tried, rows: Rows) -> Rows:
        """Without rows that have a value which led to another branch, where branches are taken from trials."""
        if self.infer is None or len(self.branches) == 1:
            return rows
        likely = np.ones(len(rows), dtype=bool)
        for column, (name, values) in enumerate(tried.of.values.items()):
            here = set(tried.rows[:, column].tolist())
            others = [(o, list(o.of.values).index(name)) for o in self.branches if o.of.values.get(name) == values]
            gone = {place for other, at in others for place in other.rows[:, at].tolist()} - here
            likely &= ~np.isin(rows[:, column], list(gone))
        return rows[likely]

    def _places(self) -> Iterator[tuple[Tried, int]]:
        """Each branch, and where its trials begin among all."""
        start = 0
        for tried in self.branches:
            yield tried, start
            start += tried.count

    def _log(self, tried: Tried, rows: Rows, inside: NDArray[np.int64], count: int) -> NDArray[np.float32]:
        """Logarithm of the density of a set of `count` trials, of which those at places `inside` are of this branch.

        The branch is a parameter like others; of a trial elsewhere nothing else compares. One more member is uniform.
        """
        other = (1.0 - EQUAL) / len(self.branches)
        near = (EQUAL + other) * tried.density(rows, inside)
        far = tried.uniform * (other * (count - len(inside)) + 1.0 / len(self.branches))
        return np.asarray(np.log((near + far) / (count + 1)), dtype=np.float32)


def _inside(places: NDArray[np.int64], start: int, tried: Tried) -> NDArray[np.int64]:
    """Those of the places among all trials that are of one branch, counted from its first."""
    return places[(places >= start) & (places < start + tried.count)] - start


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """With mean 0 and deviation 1; failures as the worst of all, NaN stays."""
    told, finite = values[~np.isnan(values)], np.isfinite(values)
    if not finite.any():
        return np.where(np.isnan(values), np.nan, 0.0)
    told = np.minimum(told, values[finite].max())
    return np.asarray((np.minimum(values, values[finite].max()) - told.mean()) / (told.std() + 1e-9))


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """From 0 for the least to nearly 1 for the greatest; equal values rank alike."""
    _, places = np.unique(values, return_inverse=True)
    return np.asarray(places / (places.max() + 1.0))


def _any(rows: Rows, rng: np.random.Generator) -> list[int]:
    row: list[int] = rows[int(rng.integers(len(rows)))].tolist()
    return row


def _value(trial: FrozenTrial, sign: float) -> float:
    """What is minimised; infinite for a trial without a value."""
    if trial.state is not TrialState.COMPLETE or trial.value is None or not math.isfinite(trial.value):
        return math.inf
    return sign * trial.value


def make(families: Families, seen: Seen, seed: int) -> Strategy:  # noqa: ARG001 - the study's trials say it
    """The sampler over the valid spaces of all families, a branch each."""
    accept_experiments()
    tree = Tree(families)
    branches = []
    for family in families:
        values = tree.values(family)
        distributions = {name: tree.distributions[name] for name in values}
        branches.append(_of_family(family, values, distributions))
    return OptunaStrategy(ParzenSampler(branches, seed=seed), tree)


def _of_family(
    family: Family, values: Mapping[str, tuple[Any, ...]], distributions: Mapping[str, BaseDistribution]
) -> Branch:
    """The family's own parameters behind its name, which is a column of zeros."""

    def draw(rng: np.random.Generator, count: int) -> Rows:
        return np.pad(family.space.draw(rng, count), ((0, 0), (1, 0)))

    return Branch(values, distributions, draw, lambda rows: family.space.holds(rows[:, 1:]))
