"""A trading book: accounts and orders of your own, saved with the steps that changed them.

    python book.py [RUN] [AGENT]    trade; run it again to resume, or as another agent beside it
    python book.py --book           the accounts and orders

Accounts and orders are aggregates of the eventsourcing library. A trader places an order and takes
its price out of the account in one save: the order, the account and the step are all recorded, or
none of them, despite kills at any time. Two traders of one account never spend the same money: the
second gets a conflict, reads again and decides again.

The prices are a synthetic series, made from a seed: they are from no market.
"""

import argparse
import random
from decimal import Decimal
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

import hansard

OWNER = "desk"
FUNDS = Decimal("1000.00")
DAYS = 5
TRIES_MAX = 50


class Account(Aggregate):
    """A desk's budget; one for each name."""

    @event("Opened")
    def __init__(self, owner: str, funds: Decimal) -> None:
        self.owner = owner
        self.balance = funds
        self.orders: list[UUID] = []

    @staticmethod
    def create_id(owner: str) -> UUID:
        """Return the same id for the same owner, in each process."""
        return uuid5(NAMESPACE_URL, f"/accounts/{owner}")

    def pay(self, amount: Decimal, order: UUID) -> None:
        """Pay for an order."""
        if amount > self.balance:
            message = f"{amount} is more than the {self.balance} that there are"
            raise ValueError(message)
        self._pay(amount, order)

    @event("Paid")
    def _pay(self, amount: Decimal, order: UUID) -> None:
        self.balance -= amount
        self.orders.append(order)


class Order(Aggregate):
    """An order, under an id of chance."""

    @event("Placed")
    def __init__(self, symbol: str, quantity: int, limit: Decimal, trader: str) -> None:
        self.symbol = symbol
        self.quantity = quantity
        self.limit = limit
        self.trader = trader


# What is stored are these names and tags, never a class. `@event` made the classes that the names
# on the right are of: Account.Opened and so on.
hansard.aggregate_type(
    Account, name="account", events={"account-opened.v1": "Opened", "account-paid.v1": "Paid"}
)
hansard.aggregate_type(Order, name="order", events={"order-placed.v1": "Placed"})


@hansard.tool(effects="pure")
def price_of(symbol: str, day: int) -> Decimal:
    """Return a symbol's price on a day."""
    # Replace this line by a call of your data provider.
    return synthetic_price(symbol, day)


def opened(session: hansard.Session, owner: str) -> Account:
    """Return the desk's account; the first caller opens it."""
    try:
        return session.get(Account, Account.create_id(owner))
    except hansard.NotFound:
        account = Account(owner, FUNDS)
    try:
        session.save(account)
    except hansard.errors.AggregateConflict:  # somebody else was first
        return session.get(Account, Account.create_id(owner))
    return account


def decide(session: hansard.Session, account: Account, day: int, what: str, price: Decimal) -> None:
    """Put on record what is decided, and the account that it is made from."""
    reason = f"{price} of {account.balance}"
    session.decide(f"Buy on day {day}?", selected=what, inputs=[account], reason=reason)


def place(session: hansard.Session, account: Account, day: int) -> Account:
    """Buy one piece of the cheapest symbol if there is money; retry until no conflict occurs."""
    price = price_of("SYN", day)
    for _ in range(TRIES_MAX):
        if price > account.balance:
            session.decide(f"Buy on day {day}?", selected="no", inputs=[account], reason="no money")
            return account
        order = Order("SYN", 1, price, session.agent)
        session.decide(
            f"Buy on day {day}?",
            selected="yes",
            inputs=[account],
            reason=f"{price} of {account.balance}",
        )
        account.pay(price, order.id)
        try:
            session.save(account, order)
        except hansard.errors.AggregateConflict:
            account = session.get(Account, account.id)  # look again, decide again
        else:
            return account
    message = f"{TRIES_MAX} others were first: let fewer trade at once"
    raise RuntimeError(message)


def trade(session: hansard.Session, owner: str = OWNER, days: int = DAYS) -> Decimal:
    """Order once a day; return the remaining money."""
    account = opened(session, owner)
    for day in range(1, days + 1):
        account = place(session, account, day)
    return account.balance


class Book(Application[UUID]):
    """The same accounts and orders through the library, for the bookkeeper."""

    def lines(self) -> list[str]:
        """Each account and each order."""
        found: dict[UUID, str] = {}
        start = 1
        while page := self.notification_log.select(start, 10):
            for each in page:
                named = UUID(str(each.originator_id))
                found[named] = told(self.repository.get(named))
            start = page[-1].id + 1
        return list(found.values())


def told(aggregate: Aggregate) -> str:
    """Describe an account or order in a line."""
    match aggregate:
        case Account():
            return f"account {aggregate.owner}: {aggregate.balance}, {len(aggregate.orders)} orders"
        case Order():
            return (
                f"order by {aggregate.trader}: {aggregate.quantity} {aggregate.symbol} at most "
                f"{aggregate.limit}"
            )
        case _:
            return repr(aggregate)


def main(run: str, agent: str) -> None:
    """Trade, and print the remaining money."""
    with (
        hansard.connect() as record,
        record.run("trading-book", run=run, agent=agent, role="trader") as session,
    ):
        print(f"{agent} is done, {trade(session)} left")


def show_book() -> None:
    """Print what the book has."""
    with hansard.connect() as record, record.application(Book) as book:
        print("\n".join(book.lines()))


# Replacement of a data provider, so that this runs anywhere.


def synthetic_price(symbol: str, day: int) -> Decimal:
    """Return a seeded price around 100: the same for the same symbol and day, on every machine."""
    chance = random.Random(f"{symbol} {day}")  # noqa: S311 -- it has to be the same each time
    return Decimal(str(round(chance.gauss(100, 10), 2)))


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("run", nargs="?", default="book-1", help="its id; again to go on")
    given.add_argument("agent", nargs="?", default="ada", help="who trades")
    given.add_argument("--book", action="store_true", help="show what the book has")
    asked = given.parse_args()
    if asked.book:
        show_book()
    else:
        main(asked.run, asked.agent)
