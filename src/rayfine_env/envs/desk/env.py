"""A shop's service desk: tools over a database of its own, and an end state to reach."""

import random
import sqlite3
from typing import Annotated, Any, Literal

from pydantic import Field

from rayfine_env import reward, tool

from .shop import Job, Kind, ask, fill, rows

Row = dict[str, Any]
Percent = Annotated[int, Field(ge=0, le=100)]


class Desk:
    """You work at the service desk of a shop. Do what the ticket asks, no more; then close it."""

    def __init__(self) -> None:
        self._begin(0, None)

    def reset(self, seed: int | None = None, kind: Kind | None = None) -> Row:
        """A shop of its own for every seed, with one ticket to be worked.

        Args:
            seed: Of the shop and the ticket.
            kind: What the ticket is about; drawn by the seed if not said.
        """
        self._begin(seed, kind)
        return {"ticket": self._job.ticket, "text": self._job.text}

    def _begin(self, seed: int | None, kind: Kind | None) -> None:
        rng = random.Random(seed)
        self._shop = fill(rng)
        self._job: Job = ask(rng, self._shop, kind)
        self._shop.row_factory = _as_dict
        self._before = rows(self._shop)
        wanted = sqlite3.connect(":memory:")
        self._shop.backup(wanted)
        for sql, values in self._job.changes:
            wanted.execute(sql, values)
        self._wanted = rows(wanted)
        wanted.close()

    def close(self) -> None:
        self._shop.close()

    @tool
    def list_tickets(self, status: Literal["open", "closed"] = "open") -> list[Row]:
        """The tickets of customers."""
        return self._find("SELECT * FROM tickets WHERE status = ?", status)

    @tool
    def find_customer(self, text: str) -> list[Row]:
        """Customers whose name or e-mail address contains the text; ten at most."""
        like = f"%{text}%"
        return self._find(
            "SELECT * FROM customers WHERE name LIKE ? OR email LIKE ? LIMIT 10", like, like
        )

    @tool
    def get_customer(self, customer: int) -> Row:
        """One customer by id."""
        return self._one("SELECT * FROM customers WHERE id = ?", customer, "customer")

    @tool
    def list_orders(self, customer: int) -> list[Row]:
        """All orders of a customer."""
        return self._find("SELECT * FROM orders WHERE customer = ?", customer)

    @tool
    def get_order(self, order: int) -> Row:
        """One order by id."""
        return self._one("SELECT * FROM orders WHERE id = ?", order, "order")

    @tool
    def search_products(self, text: str = "") -> list[Row]:
        """Products whose name contains the text, with price in cents and stock."""
        return self._find("SELECT * FROM products WHERE name LIKE ?", f"%{text}%")

    @tool
    def cancel_order(self, order: int) -> Row:
        """Cancel an order that has not been sent; its product goes back into stock."""
        found = self.get_order(order)
        if found.get("status") != "open":
            return _refused(found, f"only an open order can be cancelled; see get_order({order})")
        self._change("UPDATE orders SET status = 'cancelled' WHERE id = ?", order)
        self._change("UPDATE products SET stock = stock + 1 WHERE id = ?", found["product"])
        return self.get_order(order)

    @tool
    def refund_order(self, order: int, cents: Annotated[int, Field(ge=0)]) -> Row:
        """Pay back so many cents for an order that was delivered."""
        found = self.get_order(order)
        if found.get("status") != "delivered":
            return _refused(found, "only what was delivered can be refunded")
        self._change("UPDATE orders SET refunded = ? WHERE id = ?", cents, order)
        return self.get_order(order)

    @tool
    def change_city(self, customer: int, city: str) -> Row:
        """Change the city that a customer's orders are sent to."""
        self._change("UPDATE customers SET city = ? WHERE id = ?", city, customer)
        return self.get_customer(customer)

    @tool
    def set_discount(self, customer: int, percent: Percent) -> Row:
        """Give a customer a discount on the next order."""
        self._change("UPDATE customers SET discount = ? WHERE id = ?", percent, customer)
        return self.get_customer(customer)

    @tool
    def add_note(self, customer: int, text: str) -> Row:
        """Write a note about a customer, for colleagues."""
        self._change("INSERT INTO notes VALUES (NULL, ?, ?)", customer, text)
        return {"done": True}

    @tool
    def delete_customer(self, customer: int) -> Row:
        """Delete a customer for good."""
        found = self.get_customer(customer)
        self._change("DELETE FROM customers WHERE id = ?", customer)
        return found

    @tool
    def close_ticket(self, ticket: int) -> Row:
        """Close a ticket that has been dealt with."""
        self._change("UPDATE tickets SET status = 'closed' WHERE id = ?", ticket)
        return self._one("SELECT * FROM tickets WHERE id = ?", ticket, "ticket")

    @reward
    def solved(self) -> float:
        """1 if the database is exactly as it should be now, else 0."""
        return float(rows(self._shop) == self._wanted)

    def progress(self) -> dict[str, int]:
        """Which changes are right so far, missing, or not wanted: for who looks at failures."""
        now = rows(self._shop)
        wanted = self._wanted - self._before
        return {
            "right": len(wanted & now),
            "missing": len(wanted - now),
            "unwanted": len(now - self._wanted - self._before),
        }

    def _find(self, sql: str, *values: Any) -> list[Row]:
        return self._shop.execute(sql, values).fetchall()

    def _one(self, sql: str, id: int, what: str) -> Row:
        found = self._find(sql, id)
        return found[0] if found else {"error": f"there is no {what} {id}"}

    def _change(self, sql: str, *values: Any) -> None:
        with self._shop:
            self._shop.execute(sql, values)


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _refused(found: Row, why: str) -> Row:
    return found if "error" in found else {"error": why}
