"""Program that saves orders with the paying account; can block at one of its appends."""

from decimal import Decimal
from uuid import UUID

from eventsourcing.application import AggregateNotFoundError, Application

from tests.aggregates.book import Account, Order
from tests.aggregates.programs.trading import numbered
from tests.faults._inside import Inside, run_program


class Book(Application[UUID]):
    """Accounts and orders."""

    def account(self, owner: str) -> Account:
        """Return an owner's account; it is opened with 100 in it."""
        try:
            stored: Account = self.repository.get(Account.create_id(owner))
        except AggregateNotFoundError:
            stored = Account(owner)
            stored.credit(Decimal(100))
            self.save(stored)
        return stored

    def place(self, owner: str, limit: Decimal) -> None:
        """Place an order, and pay for it, in one save."""
        account, order = self.account(owner), Order("A", 1, limit)
        account.pay(limit, order.id)
        self.save(order, account)


def main(inside: Inside) -> int:
    """Place the missing orders; return their number."""
    settings = inside.job.settings
    with numbered(inside) as record:
        book = record.application(Book)
        owner = settings["owner"]
        while (placed := len(book.account(owner).orders)) < settings["orders"]:
            book.place(owner, Decimal(placed + 1))
        return placed


if __name__ == "__main__":
    run_program(main)
