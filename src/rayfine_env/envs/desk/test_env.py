"""The desk by itself: every job can be done, and only its own end state is worth anything."""

import pytest

from .env import Desk
from .shop import Kind

KINDS: tuple[Kind, ...] = ("cancel", "refund", "address", "discount")


@pytest.fixture
def desk() -> Desk:
    return Desk()


def customer_of(desk: Desk, text: str) -> int:
    (found,) = desk.find_customer(text.split()[2].rstrip("."))
    return int(found["id"])


def solve(desk: Desk, kind: Kind, seed: int) -> None:
    asked = desk.reset(seed, kind)
    text = asked["text"]
    order = int(text.partition("(order ")[2].partition(")")[0] or 0)
    match kind:
        case "cancel":
            desk.cancel_order(order)
        case "refund":
            product = desk.get_order(order)["product"]
            (price,) = (p["price"] for p in desk.search_products() if p["id"] == product)
            desk.refund_order(order, price)
        case "address":
            city = text.partition("moved to ")[2].partition(".")[0]
            desk.change_city(customer_of(desk, text), city)
        case "discount":
            desk.set_discount(customer_of(desk, text), 10)
    desk.close_ticket(asked["ticket"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_job_can_be_done(desk: Desk, kind: Kind) -> None:
    for seed in range(10):
        desk.reset(seed, kind)
        assert desk.solved() == 0.0
        assert desk.progress()["missing"] > 0
        solve(desk, kind, seed)
        assert desk.solved() == 1.0
        assert desk.progress() == {**desk.progress(), "missing": 0, "unwanted": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_was_asked_is_wrong(desk: Desk, kind: Kind) -> None:
    for spoil in (
        "delete_customer(1)",
        "set_discount(2, 5)",
        "close_ticket(2)",
        "add_note(1, 'x')",
    ):
        solve(desk, kind, 3)
        eval(f"desk.{spoil}", {"desk": desk})
        assert desk.solved() == 0.0
    assert desk.progress()["unwanted"] == 1


def test_what_cannot_be_done_is_told(desk: Desk) -> None:
    desk.reset(1, "refund")
    assert desk.get_order(7) == {"error": "there is no order 7"}
    assert desk.cancel_order(7) == {"error": "there is no order 7"}
    delivered = int(desk.reset(1, "refund")["text"].partition("(order ")[2].partition(")")[0])
    assert "only an open order" in desk.cancel_order(delivered)["error"]
    assert desk.find_customer("'; DROP TABLE customers; --") == []
    assert len(desk.find_customer("")) == 10


def test_a_seed_is_a_shop(desk: Desk) -> None:
    assert desk.reset(5) == Desk().reset(5)
    assert desk.reset(5) != desk.reset(6)
