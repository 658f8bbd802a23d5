"""Small templates for tests that need no compiler."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.families.template import Template, load_template

FRONT = """summary = "a test family"
op = "forward"
source = "none"
supports = ["HS <= 128"]
[params]
BLOCK_M = [16, 32, 64]
WARPS = [1, 2, 4, 64]
PAD = [0, 1]
MODE = ["plain", "swizzled"]
[defaults]
BLOCK_M = 32
WARPS = 4
[derived]
THREADS = "WARPS * 32"
ROW = "HS + PAD"
[[constraints]]
expr = "BLOCK_M % WARPS == 0"
why = "rows are dealt to warps evenly"
[[constraints]]
expr = "PAD == 0 or MODE == 'plain'"
why = "a swizzle needs no padding"
[workspace]
partial = { shape = ["B", "NH", "T"], dtype = "fp32" }
unused = { shape = ["T"], dtype = "dtype", when = "MODE == 'never'" }
[[launch]]
zero = "partial"
[[launch]]
kernel = "attend"
grid = ["ceil_div(T, BLOCK_M)", "NH", "B"]
block = ["THREADS"]
smem = "BLOCK_M * ROW * sizeof(dtype)"
args = ["q.view", "out", "partial", "T", "scale", "T * NH"]
[[launch]]
kernel = "finish"
grid = ["B"]
block = ["32"]
args = ["partial", "lse"]
when = "MODE == 'swizzled'"
"""

BODY = """#include "common/view.cuh"
constexpr int BLOCK_M = {{ BLOCK_M }};
constexpr bool CAUSAL = {{ causal }};
{% if MODE == "plain" %}
constexpr int ROW = {{ ROW }};
{% endif %}
extern "C" __global__ void attend(View<const {{ ctype }}, 4> q, Out o, float* partial, int T, float scale, count n) {}
extern "C" __global__ void finish(const float* partial, float* lse) {}
"""

MakeTemplate = Callable[..., Template]


@pytest.fixture
def make_template(tmp_path: Path) -> MakeTemplate:
    """Writes a template file; `front` and `body` replace the defaults, `old`→`new` edits the front matter."""

    def make(front: str = FRONT, body: str = BODY, old: str = "", new: str = "", name: str = "family") -> Template:
        assert not old or old in front
        path = tmp_path / f"{name}.cu.j2"
        path.write_text("{#---\n" + (front.replace(old, new) if old else front) + "---#}\n" + body)
        return load_template(path)

    return make
