"""Orders of a queue: their file, their order, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesattn.experiments.queue.orders import Order, Queue
from bayesattn.experiments.tables import TABLES
from helpers.small_queue import TABLE


@pytest.fixture(autouse=True)
def _with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, TABLE.name, TABLE)


def test_orders_are_sorted_by_priority_and_then_by_their_coming(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    first, second = Order("short-runs", "short", 1), Order("short-runs", "short", 1, methods=("mle",))
    urgent = Order("short-runs", "short", 5, only=("toy-m1",), seeds=1)
    for order in (first, second, urgent):
        queue.add(order)
    assert Queue(tmp_path).orders() == [urgent, first, second]
    queue.add(Order("short-runs", "short", 9))
    assert [order.priority for order in queue.orders()] == [9, 5, 1], "what was ordered before has another priority now"


def test_an_order_is_the_runs_of_its_table(tmp_path: Path) -> None:
    order = Order("short-runs", "short", methods=("mle",), seeds=3)
    assert list(order.configs.values()) == TABLE.configs("short", seeds=3, methods=("mle",))
    assert all(name == config.name for name, config in order.configs.items())


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (Order("short-rums"), "table='short-rums' is not known"),
        (Order("short-runs", "long"), "budget='long' is not known"),
        (Order("short-runs", "short", only=("toy-m9",)), "only='toy-m9' is not known"),
        (Order("short-runs", "short", methods=("swag",)), "method='swag' is not known"),
    ],
)
def test_what_is_no_table_is_refused_before_it_is_ordered(order: Order, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Queue(tmp_path).add(order)
    assert Queue(tmp_path).orders() == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "text",
    ["[", '{"table": "short-runs"}', '[{"tabel": "short-runs"}]', '[{"table": "short-runs", "priority": "high"}]'],
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text(text)
    with pytest.raises(ValueError, match=r"orders.json is not a list of orders .*: mend it"):
        Queue(tmp_path).orders()


def test_the_file_may_be_edited_by_hand(tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text(json.dumps([{"table": "short-runs", "budget": "short", "methods": ["mle"]}]))
    assert Queue(tmp_path).orders() == [Order("short-runs", "short", methods=("mle",))]
