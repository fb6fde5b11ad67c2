"""The shop: its tables, what is in them for a seed, and what is asked of the desk."""

import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

TABLES = ("customers", "products", "orders", "tickets", "notes")
Kind = Literal["cancel", "refund", "address", "discount"]
_SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT, city TEXT, discount INTEGER);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, product INTEGER, status TEXT,
                     refunded INTEGER);
CREATE TABLE tickets (id INTEGER PRIMARY KEY, customer INTEGER, text TEXT, status TEXT);
CREATE TABLE notes (id INTEGER PRIMARY KEY, customer INTEGER, text TEXT);
"""
_FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon")
_LAST = ("Abel", "Brandt", "Costa", "Dahl", "Egger", "Fox")
_CITIES = ("Bern", "Cork", "Genoa", "Lyon", "Porto", "Turku")
_GOODS = ("lamp", "chair", "desk", "kettle", "clock", "rug", "shelf", "mirror")
_PEOPLE = 30


@dataclass(frozen=True)
class Job:
    """What a ticket asks for, and the changes that do it."""

    kind: Kind
    ticket: int
    text: str
    changes: tuple[tuple[str, tuple[Any, ...]], ...]


def fill(rng: random.Random) -> sqlite3.Connection:
    """A shop with customers of like names, goods and orders."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.executescript(_SCHEMA)
    for id, name in enumerate(_GOODS, 1):
        row = (id, name, rng.randint(5, 90) * 100, rng.randint(0, 9))
        database.execute("INSERT INTO products VALUES (?, ?, ?, ?)", row)
    for id in range(1, _PEOPLE + 1):
        name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
        email = f"{name.lower().replace(' ', '.')}.{id}@example.com"
        row_of = (id, name, email, rng.choice(_CITIES), 0)
        database.execute("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", row_of)
    for id in range(1, 2 * _PEOPLE + 1):
        status = rng.choice(["open", "open", "sent", "delivered"])
        order = (1000 + id, (id + 1) // 2, rng.randint(1, len(_GOODS)), status, 0)
        database.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", order)
    return database


def ask(rng: random.Random, database: sqlite3.Connection, kind: Kind | None) -> Job:
    """One ticket of a customer, put into the database."""
    job = _JOBS[kind if kind else rng.choice(list(_JOBS))](rng, database)
    customer = database.execute("SELECT customer FROM tickets").fetchone()[0]
    # Others wait too: who works the wrong ticket has not done the job.
    for other in rng.sample([id for id in range(1, _PEOPLE + 1) if id != customer], 3):
        text = "Where is my invoice?"
        database.execute("INSERT INTO tickets VALUES (NULL, ?, ?, 'open')", (other, text))
    database.commit()
    return job


def _order(rng: random.Random, database: sqlite3.Connection, status: str) -> tuple[Any, ...]:
    rows = database.execute(
        "SELECT orders.id, orders.customer, products.name, customers.email, products.id "
        "FROM orders JOIN products ON product = products.id "
        "JOIN customers ON customer = customers.id WHERE status = ?",
        (status,),
    ).fetchall()
    return tuple(rng.choice(rows))


def _ticket(database: sqlite3.Connection, customer: int, text: str) -> int:
    sql = "INSERT INTO tickets VALUES (1, ?, ?, 'open')"
    database.execute(sql, (customer, text))
    return 1


_CLOSED = "UPDATE tickets SET status = 'closed' WHERE id = ?"


def _cancel(rng: random.Random, database: sqlite3.Connection) -> Job:
    order, customer, product, email, product_id = _order(rng, database, "open")
    text = f"This is {email}. I ordered a {product} (order {order}). Please cancel it."
    ticket = _ticket(database, customer, text)
    changes = (
        ("UPDATE orders SET status = 'cancelled' WHERE id = ?", (order,)),
        ("UPDATE products SET stock = stock + 1 WHERE id = ?", (product_id,)),
        (_CLOSED, (ticket,)),
    )
    return Job("cancel", ticket, text, changes)


def _refund(rng: random.Random, database: sqlite3.Connection) -> Job:
    order, customer, product, email, _ = _order(rng, database, "delivered")
    text = f"This is {email}. My {product} (order {order}) came broken. I want my money back."
    ticket = _ticket(database, customer, text)
    price = database.execute(
        "SELECT price FROM products JOIN orders ON product = products.id WHERE orders.id = ?",
        (order,),
    ).fetchone()[0]
    changes = (
        ("UPDATE orders SET refunded = ? WHERE id = ?", (price, order)),
        (_CLOSED, (ticket,)),
    )
    return Job("refund", ticket, text, changes)


def _address(rng: random.Random, database: sqlite3.Connection) -> Job:
    customer = rng.randint(1, _PEOPLE)
    sql = "SELECT email, city FROM customers WHERE id = ?"
    email, old = database.execute(sql, (customer,)).fetchone()
    city = rng.choice([city for city in _CITIES if city != old])
    text = f"This is {email}. I have moved to {city}. Please send my orders there."
    ticket = _ticket(database, customer, text)
    changes = (
        ("UPDATE customers SET city = ? WHERE id = ?", (city, customer)),
        (_CLOSED, (ticket,)),
    )
    return Job("address", ticket, text, changes)


def _discount(rng: random.Random, database: sqlite3.Connection) -> Job:
    order, customer, product, email, _ = _order(rng, database, "sent")
    text = f"This is {email}. My {product} (order {order}) is late. You promised 10 % off the next."
    ticket = _ticket(database, customer, text)
    changes = (
        ("UPDATE customers SET discount = 10 WHERE id = ?", (customer,)),
        (_CLOSED, (ticket,)),
    )
    return Job("discount", ticket, text, changes)


_JOBS: dict[Kind, Callable[[random.Random, sqlite3.Connection], Job]] = {
    "cancel": _cancel,
    "refund": _refund,
    "address": _address,
    "discount": _discount,
}


def rows(database: sqlite3.Connection) -> set[tuple[Any, ...]]:
    """All that the database holds; notes count by what they say."""
    found: set[tuple[Any, ...]] = set()
    cursor = database.cursor()
    cursor.row_factory = None  # whatever the tools want
    for table in TABLES:
        # The names are our own, above.
        found |= {(table, *row) for row in cursor.execute(f"SELECT * FROM {table}")}
    return found
