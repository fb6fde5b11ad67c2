"""The suite of every transport, over a container's."""

from collections.abc import Callable, Iterator

import pytest

from rayfine_env import load_env
from tests.contracts.test_transports import *  # noqa: F403
from tests.contracts.test_transports import Handle

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", params=["unix", "tcp"])  # type: ignore[no-redef]
def env(request: pytest.FixtureRequest, image: Callable[[str], str]) -> Iterator[Handle]:
    with load_env(image("bench"), transport=request.param) as found:
        yield found
