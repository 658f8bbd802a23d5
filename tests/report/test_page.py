"""What stands on a page, without a browser: values, labels of estimates, and names that would be tags."""

import builtins
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.ncu_table import MARK
from autotune.cli.main import run
from autotune.core.candidate import make_candidate
from autotune.core.measurement import Measurement, Timing
from autotune.core.model_version import DRIVER
from autotune.core.outcome import Outcome
from autotune.core.words import format_ms
from autotune.families.op_ref import load_own
from autotune.families.render import render
from autotune.families.space import Space
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.report.page.plots import ESTIMATED
from autotune.store import open_store
from autotune.store.records import StoredMeasurement
from tests.answers.test_profiling import RAW
from tests.report.databases import HACK, NAMES, TRIALS, hostile
from tests.search_doubles import took

pytest.importorskip("plotly")

ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "h1", "h2", "h3", "h4", "p",
    "a", "b", "strong", "small", "span", "div", "pre", "table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd",
    "ul", "li", "figure", "figcaption", "details", "summary", "script", "noscript",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "http-equiv", "class", "id", "style", "href", "type", "data-for", "tabindex",
    "open", "role", "aria-label",
}  # fmt: skip


class Read(HTMLParser):
    """A page taken apart: tags, attributes, texts by tag, figures by title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.captions: dict[str, str] = {}
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._words: list[str] = []
        self._caption: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        found = dict(attrs)
        self.links += [str(found["href"])] if "href" in found else []
        if tag not in {"meta"}:
            self._open.append((tag, found))
        if tag == "figcaption":
            self._caption = []
        if found.get("class") == "plot":
            self.captions[str(found["id"])] = " ".join(" ".join(self._caption).split())

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script":
            self.scripts.append((str(attributes.get("data-for", "")), data))
        elif tag != "style":
            self._words.append(data)
            if any(name == "figcaption" for name, _ in self._open):
                self._caption.append(data)

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        return {name: json.loads(text) for name, text in self.scripts if name}


def report(database: Path, *arguments: str) -> Read:
    output = database.with_suffix(".html")
    assert run(["report", "-o", str(output), "--db", str(database), *arguments]) == 0
    return Read(output.read_text())


@pytest.fixture(scope="module")
def page(searched: Path) -> Read:
    return report(searched)


@pytest.fixture(scope="module")
def trials(searched: Path) -> list[StoredMeasurement]:
    with open_store(searched) as store:
        return list(store.measurements())


def titled(page: Read, title: str) -> Iterator[dict[str, Any]]:
    for name, figure in page.figures.items():
        if page.captions[name].startswith(title):
            yield figure


def test_the_winner_stands_there(page: Read, searched: Path) -> None:
    with open_store(searched) as store:
        (winner,) = store.winners()
    record = winner.record
    kernel = record.measurement.resources[0]
    assert f"time {format_ms(record.measurement.ms)} ms estimated" in page.text
    assert f"#1 {record.candidate.template} {format_ms(record.measurement.ms)} est. estimated" in page.text
    assert " ".join(f"{name}={value}" for name, value in record.candidate.values) in page.text
    numbers = (kernel.registers, kernel.spill_bytes, kernel.static_smem, kernel.dynamic_smem, kernel.threads)
    assert f"{kernel.kernel} {' '.join(map(str, numbers))} {kernel.occupancy:.0%}" in page.text
    assert f"lines, source {record.source_hash}" in page.text
    assert "__global__" in page.text
    assert page.tags["pre"] == 1


def test_the_history_is_that_of_the_search(page: Read, trials: list[StoredMeasurement]) -> None:
    (figure,) = titled(page, "History")
    assert len(trials) == TRIALS
    right = [(at, record.measurement.ms) for at, record in enumerate(trials, 1) if record.measurement.outcome == "ok"]
    dots, line, *failed = figure["data"]
    assert list(zip(dots["x"], dots["y"], strict=True)) == right
    best = [min(ms for _, ms in right[: n + 1] if ms) for n in range(len(right))]
    climb = [(at, ms) for n, (at, ms) in enumerate(right) if n == 0 or (ms != best[n - 1] and ms == best[n])]
    assert list(zip(line["x"], line["y"], strict=True))[: len(climb)] == climb
    assert line["y"][-1] == best[-1]
    assert line["x"][-1] == TRIALS
    assert [len(trace["x"]) for trace in failed] == [TRIALS - len(right)] * (len(right) < TRIALS)


def test_outcomes_slices_and_importances(page: Read, trials: list[StoredMeasurement]) -> None:
    (figure,) = titled(page, "Outcomes by kind")
    counted = {trace["name"]: sum(trace["x"]) for trace in figure["data"]}
    assert counted == Counter(record.measurement.outcome.value for record in trials)
    right = [record for record in trials if record.measurement.outcome == "ok"]
    (unroll,) = titled(page, "UNROLL")
    points = sorted(zip(map(int, unroll["data"][0]["x"]), unroll["data"][0]["y"], strict=True))
    assert points == sorted((record.candidate.config["UNROLL"], record.measurement.ms) for record in right)
    assert unroll["layout"]["xaxis"]["categoryarray"] == ["2", "4"]
    assert not list(titled(page, "STAGED"))  # one value: nothing to see
    (important,) = titled(page, "Importances of parameters, thread_per_row")
    (bars,) = important["data"]
    assert bars["name"] == "PED-ANOVA"
    assert sum(bars["x"]) == pytest.approx(1.0)
    assert "UNROLL" in bars["y"]
    assert "STAGED" not in bars["y"]


def test_the_roofline_has_roofs_and_candidates(page: Read, trials: list[StoredMeasurement]) -> None:
    (figure,) = titled(page, "Roofline")
    spec, problem = gpu("h200"), trials[0].problem
    op = get_op(problem.op)
    memory, tensor, fp32, dots, counted = figure["data"]
    assert [y / x for x, y in zip(memory["x"], memory["y"], strict=True)] == pytest.approx(
        [spec.bandwidth_gbs / 1e3] * 2
    )
    assert (tensor["y"], fp32["y"]) == ([spec.tensor_tflops] * 2, [spec.fp32_tflops] * 2)
    assert set(dots["x"]) == {op.flops(problem) / op.nbytes(problem)}
    right = [record.measurement.ms or 0.0 for record in trials if record.measurement.outcome == "ok"]
    assert sorted(dots["y"]) == pytest.approx(sorted(op.flops(problem) / (ms * 1e9) for ms in right))
    assert "counted (est.)" in counted["name"]
    assert 0.0 < counted["y"][0] < counted["x"][0] * spec.bandwidth_gbs / 1e3


def test_the_checker_has_its_say(page: Read) -> None:
    assert "nothing found on the emulator, executed as softmax B=1 NH=1 T=64" in page.text
    assert "ms on NVIDIA H200 by a model, not measured" in page.text


@pytest.mark.parametrize("measured", [True, False])
def test_estimates_are_labelled_on_every_plot(page: Read, tmp_path: Path, measured: bool) -> None:
    other = report(hostile(tmp_path / "a.db", measured=measured), "--no-examine")
    for found in (other,) if measured else (other, page):
        assert len(found.figures) >= 5
        for name, figure in found.figures.items():
            text, caption = json.dumps(figure), found.captions[name]
            assert (ESTIMATED in figure["layout"].get("title", {}).get("text", "")) != measured
            assert ("estimate" in caption.lower()) != measured
            axes = [a["title"]["text"] for n, a in figure["layout"].items() if n.endswith("axis") and "title" in a]
            assert all(("estimated" in title) != measured for title in axes if re.search(r"\bms\b|FLOP/s", title)), axes
            assert "estimate" not in text.lower() or not measured
        assert ("not measurements" in found.text) != measured


def test_names_that_would_be_tags_are_text(tmp_path: Path) -> None:
    found = report(hostile(tmp_path / "a.db"), "--no-examine", "--op", "forward")
    both = report(tmp_path / "a.db", "--no-examine")
    for each in (found, both):
        assert each.tags.keys() <= ALLOWED, each.tags.keys() - ALLOWED
        assert each.attributes <= ATTRIBUTES, each.attributes - ATTRIBUTES
        assert all(link.startswith("#part") for link in each.links)
        assert sum(name == "" for name, _ in each.scripts) == 2
        for name in ("family", "parameter", "value", "sampler"):
            assert NAMES[name] in each.text
        assert NAMES["message"].replace("\x1b", "\\x1b") in each.text
        for figure in each.figures.values():
            for text in texts(figure):
                assert "<" not in re.sub(r"<br>|</?b>(?=ESTIMATES|$)", "", text), text
                assert HACK not in text or "&lt;" in text or "&gt;" in text or "…" in text, text
    assert NAMES["op"] in both.text
    assert NAMES["op"] not in found.text


def texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)


def test_plotly_knows_all_that_plots_say(page: Read, tmp_path: Path) -> None:
    from plotly.graph_objects import Figure

    for found in (page, report(hostile(tmp_path / "a.db"), "--no-examine")):
        for figure in found.figures.values():
            Figure(figure)  # raises for what is no property of its


def test_the_page_needs_nothing_else(searched: Path, page: Read) -> None:
    text = searched.with_suffix(".html").read_text()
    markup = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#)""", markup)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; script-src"
    )
    import base64
    import hashlib

    for script in (script for name, script in page.scripts if not name):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text


def test_filters_and_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, output = hostile(tmp_path / "a.db"), tmp_path / "x.html"
    base = ["report", "-o", str(output), "--db", str(database), "--no-examine", "--json"]
    assert run(base) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["file"], data["bytes"], data["left_out"]) == (str(output), output.stat().st_size, 0)
    assert [(p["device"], p["kind"], p["trials"]) for p in data["problems"]] == [
        ("h200", "measured", 1),
        ("h200", "measured", 28),
    ]
    assert data["problems"][1]["winner"]["ms"] == 1.0
    assert run([*base, "--limit", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (len(data["problems"]), data["left_out"]) == (1, 1)
    assert "1 more problems match and are left out" in Read(output.read_text()).text
    assert run([*base, "--template", "other0"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["problems"]
    assert (only["trials"], only["winner"]["template"]) == (2, "other0")
    assert run([*base, "--T", "512"]) == 2
    assert "no trial in" in capsys.readouterr().err
    assert run(["report", "-o", str(tmp_path), "--db", str(database)]) == 2
    assert "is a folder; name a file" in capsys.readouterr().err
    assert run(["report", "-o", str(tmp_path / "no" / "a.html"), "--db", str(database)]) == 2
    assert run(["report", "-o", str(output), "--db", str(tmp_path / "none.db")]) == 1


@pytest.mark.parametrize("missing", ["plotly", "pygments"])
def test_what_is_not_installed_is_named(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == missing else find(name, *more))
    assert run(["report", "-o", str(tmp_path / "a.html"), "--db", str(tmp_path / "none.db")]) == 2
    said = capsys.readouterr().err
    assert f"autotune report needs {missing}" in said
    assert "pip install 'autotune-kernels[report]' (in a checkout: pip install -e '.[report]')" in said


def contender(name: str, ms: float | None, **more: Any) -> dict[str, Any]:
    errors = {"out": {"largest": 0.1, "relative": 1e-3}, "lse": {"largest": 0.1, "relative": 2e-3}} if ms else {}
    return {"name": name.lower(), "title": name, "became": "ok", "reason": "", "ms": ms, "call_us": ms and 17.5,
            "rounds": [{"ms": ms}], "errors": errors, **more}  # fmt: skip


PEERS = {
    "environment": {"device": "NVIDIA H200", "driver": "13.0"},
    "versions": {"torch": "2.9"},
    "rows": [
        {
            "problem": {"op": "forward", "T": 256}, "flops": 1e9,
            "contenders": [
                contender("PyTorch cuDNN", 0.8),
                contender("<b>flash</b>", 1.5),
                contender("xFormers", None, became="absent", reason="not installed"),
                contender("hasty", 0.1, became="wrong", reason="out is off by 3"),
                contender("flash 4", float("nan")),
            ],
        },
        {"problem": {"op": "forward", "T": 512}, "contenders": [contender("PyTorch cuDNN", 3.0)]},
    ],
}  # fmt: skip


def test_peers_stand_beside_our_winner(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text(json.dumps(PEERS))
    options = ["--no-examine", "--op", "forward", "--peers", str(tmp_path / "peers.json")]
    found = report(hostile(tmp_path / "a.db"), *options)
    mine, other = titled(found, "Peers")
    assert mine["data"][0]["x"] == [1.5, 1.0, 0.8]
    assert mine["data"][0]["y"][0] == "&lt;b&gt;flash&lt;/b&gt;"
    assert mine["data"][0]["y"][1].startswith("winner here (&lt;img")
    assert other["data"][0]["x"] == [3.0]
    assert "PyTorch cuDNN 0.8 17.5 0.002" in found.text
    assert "xFormers not installed" in found.text
    assert "hasty 0.1 17.5 0.002 WRONG out is off by 3" in found.text
    assert "flash 4 17.5 0.002 no time" in found.text
    assert "op=forward T=512" in found.text
    (tmp_path / "peers.json").write_text(json.dumps({**PEERS, "environment": {"device": "NVIDIA A100"}}))
    elsewhere = report(hostile(tmp_path / "c.db"), *options)
    assert [figure["data"][0]["x"] for figure in titled(elsewhere, "Peers")] == [[1.5, 0.8], [3.0]]
    (tmp_path / "peers.json").write_text(json.dumps(PEERS))
    # Measured times do not stand beside estimates.
    estimated = report(hostile(tmp_path / "b.db", measured=False), *options)
    assert next(titled(estimated, "Peers"))["data"][0]["x"] == [1.5, 0.8]


@pytest.mark.parametrize(
    "data",
    [
        [{"name": "a", "ms": 2.0}],
        {"results": [{"backend": "a", "median_ms": 2.0}]},
        {"problem": {"op": "forward"}, "peers": {"a": 2.0}},
        [{"problem": {"T": 256}, "rows": [{"peer": "a", "ms": 2}]}],
    ],
)
def test_peers_in_other_forms(data: Any, tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text(json.dumps(data))
    found = report(
        hostile(tmp_path / "a.db"), "--no-examine", "--op", "forward", "--peers", str(tmp_path / "peers.json")
    )
    (figure,) = titled(found, "Peers")
    assert sorted(figure["data"][0]["x"]) == [1.0, 2.0]


@pytest.mark.parametrize("text", ["{", "[]", '[{"name": "a"}]', '[{"ms": 1}]'])
def test_what_has_no_peers_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "peers.json").write_text(text)
    database = hostile(tmp_path / "a.db")
    assert (
        run(["report", "-o", str(tmp_path / "a.html"), "--db", str(database), "--peers", str(tmp_path / "peers.json")])
        == 2
    )
    assert "--peers" in capsys.readouterr().err


def test_counters_stand_at_their_problem(tmp_path: Path) -> None:
    database = hostile(tmp_path / "a.db")
    with open_store(database) as store:
        key = next(s.problem.key for s in store.problems(op="forward"))
    (tmp_path / "ours.csv").write_text(MARK + json.dumps({"problem": key, "candidate": NAMES["family"]}) + "\n" + RAW)
    (tmp_path / "theirs.csv").write_text(RAW)
    found = report(database, "--no-examine", "--ncu", str(tmp_path / "ours.csv"), "--ncu", str(tmp_path / "theirs.csv"))
    first, second = found.text.split("Nsight Compute")[1:]
    assert first.startswith(f" {NAMES['family']} {key} kernel time DRAM bytes achieved occupancy registers")
    assert "row_softmax 3.456 µs 1.18 MiB 48.25 % 64" in first
    assert second.startswith(", of other problems kernel time")


def test_a_missing_import_does_not_hide_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Plotly is read, not imported, until a page is written: the other commands do not pay for it."""
    imported = builtins.__import__
    seen: list[str] = []

    def noted(name: str, *rest: Any) -> Any:
        seen.append(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", noted)
    assert run(["list", "winners", "--shipped", "--json"]) == 0
    assert not any(name.startswith(("plotly", "pygments")) for name in seen)


def test_a_family_of_ones_own(tmp_path: Path) -> None:
    """Its source and its roofline are there where the file is named, and not otherwise."""
    template = Path(__file__).parents[2] / "examples" / "softmax" / "softmax.cu.j2"
    own, identity = load_own(template, "softmax_reference:row_softmax"), DeviceIdentity("cpu", gpu("h200"))
    problem = get_op("row_softmax").problem(rows=64, cols=64)
    space = Space(own, problem, identity.spec)
    candidate = space.candidate(space.default())
    source = render(own, problem, candidate.config, identity.spec)
    with open_store(tmp_path / "own.db") as store:
        timing = Timing("estimated", 0.5, 0.5, 0.5, 0.5, 0, "a model")
        environment = {"driver": DRIVER}
        measurement = Measurement(Outcome.OK, "", timing, took(0.5).verification, environment=environment)
        store.record(identity, problem, candidate, source.hash, measurement)
    options = ["--no-examine", "--template", str(template), "--reference", "softmax_reference:row_softmax"]
    found = report(tmp_path / "own.db", *options)
    assert "constexpr int THREADS = 128;" in found.text.replace(" ;", ";")
    (figure,) = titled(found, "Roofline")
    rate = get_op("row_softmax").flops(problem) / 0.5e9
    assert figure["data"][3]["y"] == [pytest.approx(rate)]
    other = report(tmp_path / "own.db", "--no-examine")
    assert "is a file of your own, which --template names" in other.text
    assert other.tags["pre"] == 0


def test_estimates_of_former_models_are_left_out(tmp_path: Path) -> None:
    """They do not compare with those of the present one."""
    identity, problem = DeviceIdentity("cpu", gpu("h200")), get_op("forward").problem(T=256)
    with open_store(tmp_path / "a.db") as store:
        for driver, ms in (("estimates, model 1", 0.25), (DRIVER, 2.0)):
            timing = Timing("estimated", ms, ms, ms, ms, 0, "a model")
            measurement = Measurement(Outcome.OK, "", timing, took(1.0).verification, environment={"driver": driver})
            store.record(identity, problem, make_candidate("fam", "hash", {"N": 1}), "source", measurement)
    found = report(tmp_path / "a.db", "--no-examine")
    assert "1 trial: 1 ok; 1 estimate of former models left out" in found.text
    (figure,) = titled(found, "History")
    assert figure["data"][0]["y"] == [2.0]
    assert "#1 fam 2 est. estimated" in found.text
