"""The page in a real browser, at the width of a desk and of a phone; pictures are kept in the test's folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.report.page.plots import ESTIMATED
from tests.report.browser import MISSING, Browser, browser, program
from tests.report.databases import hostile

pytest.importorskip("plotly")
pytestmark = pytest.mark.skipif(program() is None, reason=MISSING)

WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = program()
    assert found is not None
    with browser(found, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def pages(searched: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of a search with estimates, and of hostile records: measured, and estimated."""
    folder = tmp_path_factory.mktemp("pages")
    databases = {
        "search": (searched, []),
        "measured": (hostile(folder / "measured.db"), ["--no-examine"]),
        "estimated": (hostile(folder / "estimated.db", measured=False), ["--no-examine"]),
    }
    for name, (database, options) in databases.items():
        assert run(["report", "-o", str(folder / f"{name}.html"), "--db", str(database), *options]) == 0
    return {name: folder / f"{name}.html" for name in databases}


DRAW_ALL = """new Promise((done, failed) => {
    document.querySelectorAll('details').forEach(one => { one.open = true; });
    dispatchEvent(new Event('beforeprint'));
    const started = Date.now();
    const look = () => {
        const left = document.querySelectorAll('.plot:not([data-drawn=done])').length;
        if (!left) return setTimeout(done, 100);
        if (Date.now() - started > 60000) return failed(new Error(`${left} plots are not drawn`));
        setTimeout(look, 30);
    };
    look();
})"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["search", "measured", "estimated"])
def test_a_page_at_a_width(opened: Browser, pages: dict[str, Path], name: str, width: int, tmp_path: Path) -> None:
    opened.open(pages[name].as_uri(), width)
    opened.ask(DRAW_ALL)
    assert opened.complaints() == []
    assert [address for address in opened.requests() if not address.startswith(("file:", "data:"))] == []
    assert opened.ask("window.hacked") is None
    assert opened.ask("document.documentElement.scrollWidth") == width, "nothing is wider than the page"
    # What is wider than the page scrolls in a box of its own.
    assert (
        opened.ask("""[...document.querySelectorAll('table, pre')].filter(one =>
        one.getBoundingClientRect().right > innerWidth && !one.closest('.scroll')).length""")
        == 0
    )
    plots = opened.ask("""[...document.querySelectorAll('.plot')].map(one => {
        const box = one.getBoundingClientRect(), title = one.querySelector('.gtitle');
        const label = title && title.getBoundingClientRect();
        return {width: box.width, right: box.right, text: title ? title.textContent : '',
                seen: label ? label.left >= box.left && label.right <= box.right && label.width > 50 : null};
    })""")
    assert len(plots) >= 5
    for plot in plots:
        assert 200 < plot["width"] <= width
        assert plot["right"] <= width
        assert (plot["text"], plot["seen"]) == (("", None) if name == "measured" else (ESTIMATED, True))
    sizes = "[...document.querySelectorAll('p, td, dd, li')].map(one => parseFloat(getComputedStyle(one).fontSize))"
    small = opened.ask(f"Math.min(...{sizes})")
    assert small >= 12
    picture = tmp_path / f"{name}-{width}.png"
    opened.picture(picture)
    _look(picture, width)


def _look(picture: Path, width: int) -> None:
    """There is something on it, in colours; kept where `AUTOTUNE_TEST_PICTURES` says."""
    image = pytest.importorskip("PIL.Image").open(picture).convert("RGB")
    assert image.width == width
    assert image.height > 1500
    assert len(image.resize((200, 800)).getcolors(200 * 800)) > 50
    folder = os.environ.get("AUTOTUNE_TEST_PICTURES")
    if folder:
        Path(folder, picture.name).write_bytes(picture.read_bytes())


def test_plots_are_drawn_when_they_come_near(opened: Browser, pages: dict[str, Path]) -> None:
    opened.open(pages["search"].as_uri(), 390)
    drawn = "document.querySelectorAll('.plot[data-drawn]').length"
    before, every = opened.ask(drawn), opened.ask("document.querySelectorAll('.plot').length")
    assert before < every
    opened.ask("""new Promise((done, failed) => {
        const roofline = [...document.querySelectorAll('.plot')].pop();
        roofline.scrollIntoView();
        setTimeout(() => failed(new Error('it is not drawn')), 60000);
        const look = () => roofline.dataset.drawn === 'done' ? done() : setTimeout(look, 30);
        look();
    })""")
    assert opened.ask(drawn) > before


def test_names_are_read_as_they_are(opened: Browser, pages: dict[str, Path]) -> None:
    """In legends and axes, too, which Plotly makes of a language of its own."""
    opened.open(pages["measured"].as_uri(), 1280)
    opened.ask(DRAW_ALL)
    legends = opened.ask("[...document.querySelectorAll('.legendtext')].map(one => one.textContent)")
    assert "<img src=x onerror=window.hacked=1>" in legends
    ticks = opened.ask("[...document.querySelectorAll('.xtick text, .ytick text')].map(one => one.textContent)")
    assert "<img src=x onerror=wi…" in ticks
    assert opened.ask("document.querySelectorAll('img, .plot a, svg svg a').length") == 0
