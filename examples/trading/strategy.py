"""Four agents decide on a trade, and the order is placed once, despite kills at any time.

    python strategy.py [RUN]       decide and place the order; run it again to resume
    python strategy.py --book      the orders at the exchange

Analysis hands its signal to recommendation, recommendation its action to risk, risk an order to
execution. Placing an order is `once`: killed between intent and outcome, the run stops until
somebody has looked into the order book and settled the outcome.

The prices are a synthetic series, made from a seed: they are from no market.
"""

import argparse
import os
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any

import hansard

SYMBOL = "SYN"
SCORE_MIN = 0.55
PIECES_MAX = 100
ORDER_VALUE_MAX = 5_000

RULES = (
    hansard.deny(
        "place_order", unless={"quantity": hansard.at_most(PIECES_MAX)}, name="position limit"
    ),
    hansard.budget("attempts to order", limit=3, tool="place_order"),
)


@hansard.tool(effects="pure")
def daily_prices(symbol: str, days: int) -> list[float]:
    """Return a symbol's closing prices, newest last."""
    # Replace this line by a call of your data provider.
    return synthetic_series(symbol, days)


@hansard.tool(effects="pure")
def moving_average(prices: list[float], days: int) -> float:
    """Return the mean of the last so many days."""
    return round(mean(prices[-days:]), 4)


@hansard.tool(effects="pure", kind="model")
def judge(short: float, long: float) -> dict[str, float]:
    """Score how well each action fits, from 0 to 1."""
    # Replace this line by a call of your model.
    return scores_by_trend(short, long)


def unplaced_order(symbol: str, side: str, quantity: int, limit: float) -> int:  # noqa: ARG001 -- the tool's
    """Return the number of no order: a fork with edits places none."""
    return 0


@hansard.tool(shadow=unplaced_order)  # it says nothing of its effects: `once`
def place_order(symbol: str, side: str, quantity: int, limit: float) -> int:
    """Place an order; its number at the exchange."""
    # Replace this line by a call of your broker.
    return enter_in_book(symbol, side, quantity, limit)


def analyse(session: hansard.Session) -> dict[str, float]:
    """Return the signal of the prices."""
    prices = daily_prices(SYMBOL, 120)
    signal = {
        "price": prices[-1],
        "short": moving_average(prices, 10),
        "long": moving_average(prices, 60),
    }
    session.checkpoint("analysed", **signal)
    session.hand_off("recommendation", signal, reason="the averages are known")
    return signal


def recommend(session: hansard.Session, signal: dict[str, float]) -> str:
    """Return the recommended action."""
    scores = judge(signal["short"], signal["long"])
    best = max(scores, key=lambda action: scores[action])
    action = best if scores[best] >= SCORE_MIN else "hold"
    session.decide(
        f"What to do with {SYMBOL}?",
        selected=action,
        alternatives=[{"id": each, "score": score} for each, score in scores.items()],
        threshold=SCORE_MIN,
        confidence=scores[action],
        reason=f"the short average is {signal['short']}, the long one {signal['long']}",
    )
    session.checkpoint("recommended", action=action)
    session.hand_off("risk", {"action": action}, reason="an action needs a size")
    return action


def limit_risk(session: hansard.Session, action: str, price: float) -> dict[str, Any] | None:
    """Return the affordable order, if any."""
    affordable = int(ORDER_VALUE_MAX / price)
    quantity = 0 if action == "hold" else min(affordable, PIECES_MAX)
    session.decide(
        "How many pieces?",
        selected=str(quantity),
        alternatives=[
            {"id": str(affordable), "reason": f"{ORDER_VALUE_MAX} buys so many"},
            {"id": str(PIECES_MAX), "reason": "the position limit"},
            {"id": "0", "reason": "for where nothing is to be done"},
        ],
        threshold=PIECES_MAX,
        reason=f"{action} at {price}: the smallest that a limit allows",
    )
    session.checkpoint("limited", quantity=quantity)
    if quantity == 0:
        return None
    order = {"symbol": SYMBOL, "side": action, "quantity": quantity, "limit": price}
    session.hand_off("execution", order, reason="the order is within the limits")
    return order


def execute(session: hansard.Session, order: dict[str, Any]) -> str:
    """Place the order."""
    number = place_order(**order)
    session.checkpoint("executed", order=number)
    return f"order {number}: {order['side']} {order['quantity']} {SYMBOL} at {order['limit']}"


def trade(record: hansard.Record, run: str) -> str:
    """Have the four agents decide; return the result."""
    with record.run("trading", run=run, agent="analysis", role="analyst") as analyst:
        signal = analyse(analyst)
        with record.run(run=run, agent="recommendation", role="advisor") as advisor:
            action = recommend(advisor, signal)
        with record.run(run=run, agent="risk", role="risk") as risk:
            order = limit_risk(risk, action, signal["price"])
        if order is None:
            return "no order"
        with record.run(run=run, agent="execution", role="trader") as trader:
            return execute(trader, order)


def main(run: str) -> None:
    """Trade and print the result, or the step in doubt."""
    with hansard.connect(gate=RULES) as record:
        try:
            print(trade(record, run))
        except hansard.InDoubt as doubt:
            sys.exit(f"{doubt}\nto look: python strategy.py --book")


# Replacements of a data provider, a model and an exchange, so that this runs anywhere.

BOOK = Path("order_book.sqlite")


def synthetic_series(symbol: str, days: int) -> list[float]:
    """Return a seeded random walk from 100: the same series for the same symbol, on every
    machine.
    """
    seeded = random.Random(symbol)  # noqa: S311 -- it has to be the same each time
    moves = (seeded.gauss(0.1, 1) for _ in range(days - 1))
    return [round(price, 2) for price in accumulate(moves, initial=100.0)]


def scores_by_trend(short: float, long: float) -> dict[str, float]:
    """Score by rule: buying rates higher the further the short average is above the long one."""
    trend = max(-1.0, min(1.0, 20 * (short - long) / long))
    return {"buy": round((1 + trend) / 2, 4), "sell": round((1 - trend) / 2, 4), "hold": 0.5}


@contextmanager
def order_book() -> Iterator[sqlite3.Connection]:
    """Yield an exchange in a file, committed when the block ends without an error."""
    with closing(sqlite3.connect(BOOK)) as book, book:
        book.execute("CREATE TABLE IF NOT EXISTS orders (symbol, side, quantity, price)")
        yield book


def enter_in_book(symbol: str, side: str, quantity: int, limit: float) -> int:
    """Enter an order; the exchange takes every order, repeated ones as well."""
    with order_book() as book:
        order = (symbol, side, quantity, limit)
        return book.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", order).lastrowid or 0


def show_book() -> None:
    """Print the orders that the exchange has, with their numbers."""
    with order_book() as book:
        for number, *order in book.execute("SELECT rowid, * FROM orders"):
            print(number, *order)


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    run = os.environ.get("HANSARD_RUN", "trade-1")  # of a worker: the fork that it runs
    given.add_argument("run", nargs="?", default=run, help="its id; again to go on")
    given.add_argument("--book", action="store_true", help="show what the exchange has")
    asked = given.parse_args()
    if asked.book:
        show_book()
    else:
        main(asked.run)
