"""The table of what look-ups answer for steps of decoding."""

import pytest

from benchmarks.decode_choices import HEAD, main


def test_a_line_for_every_problem_with_what_it_keeps_busy(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--sizes", "128"])
    head, rule, *lines = capsys.readouterr().out.splitlines()
    assert head == "| " + " | ".join(HEAD) + " |"
    assert rule == "|" + "---|" * len(HEAD)
    assert len(lines) == 3 * 4 * 2
    # 128 pairs of sequence and key head: a block each, for which an SM has room twice; 2 * 16 * 8 * 4096 * 128 elements
    assert "| 128 | 16 | 8 | 4096 | flash_wgmma | 64 | 64 | 1 | 128 | 2 | 0.48 | 78 | 0.0625 |" in lines
    assert "| 128 | 1 | 8 | 32768 | flash_mma | 32 | 64 | 32 | 256 | 3 | 0.65 | 140 | 0.0312 |" in lines
