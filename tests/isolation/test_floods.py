"""Author code that uses too much: bounded, typed, and the others do not notice."""

import pytest

from rayfine_env.errors import EnvError
from tests.isolation.instances import Family, Handle, opened, outcome, timed, wait_until

LOG_BYTES = 32 << 20


@pytest.mark.promise("R1")
def test_a_flood_of_output_leaves_a_short_log(faulty: Handle) -> None:
    log = Family(faulty).log
    with opened(faulty) as (other,):
        for _ in range(2):
            faulty.do("flood")
            assert timed(other.count)[1] < 2
        assert wait_until(lambda: log.stat().st_size < LOG_BYTES)
        with opened(faulty) as (speaker,):
            outcome(lambda: speaker.do("abort"))
        # What is said after the flood can be read, and is not lost in a file of zeros.
        text = log.read_bytes()
        assert len(text) < LOG_BYTES
        assert text.count(b"\0") == 0


@pytest.mark.promise("R1")
def test_thousands_of_open_files_are_the_sessions_own(faulty: Handle) -> None:
    with opened(faulty, 3) as (hoarder, *others):
        found = [outcome(lambda: hoarder.do("open_files")) for _ in range(5)]
        assert not isinstance(found[0], Exception)
        assert isinstance(found[-1], EnvError)
        assert "Too many open files" in found[-1].message
        assert hoarder.count() == 1
        assert [other.count() for other in others] == [1, 1]
        hoarder.close()
    with faulty.session() as again:
        assert again.count() == 1
