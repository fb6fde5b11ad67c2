"""The peers, as fixtures."""

import pytest

from tests.interop.peer import Peer, peer


@pytest.fixture(scope="session")
def openenv() -> Peer:
    return peer("openenv")


@pytest.fixture(scope="session")
def fastmcp() -> Peer:
    return peer("fastmcp")


@pytest.fixture(scope="session")
def affinetes() -> Peer:
    return peer("affinetes")


@pytest.fixture(scope="session")
def aenvironment() -> Peer:
    return peer("aenvironment")


@pytest.fixture(scope="session")
def schemathesis() -> Peer:
    return peer("schemathesis")
