"""Claims about runs on a chain: contracts that take bonds, lead two parties to one step, and judge it.

The contracts are in ``contracts``; what they hash is in ``docs/commitments.md``, what they do in ``docs/chain.md``. In
Python, read `cvm.audit.chain.moves` first (from a position of a game to the call that answers it), then `play`, the
loop of a party, `book` and `node`. The package needs the extra ``chain``.
"""

from cvm.audit.chain.book import Book, Challenge, Entry, Status
from cvm.audit.chain.demo import play_demo
from cvm.audit.chain.deployment import Deployment, Terms, receipt_head
from cvm.audit.chain.deployment import deploy as deploy_contracts
from cvm.audit.chain.deployment import load as load_deployment
from cvm.audit.chain.deployment import save as save_deployment
from cvm.audit.chain.deployment import verify as verify_deployment
from cvm.audit.chain.node import Account, Limits, Lost, Node, Reverted, Sending
from cvm.audit.chain.play import Done, Player, refute
from cvm.audit.chain.refutation import read_run, refutation

__all__ = [
    "Account",
    "Book",
    "Challenge",
    "Deployment",
    "Done",
    "Entry",
    "Limits",
    "Lost",
    "Node",
    "Player",
    "Reverted",
    "Sending",
    "Status",
    "Terms",
    "deploy_contracts",
    "load_deployment",
    "play_demo",
    "read_run",
    "receipt_head",
    "refutation",
    "refute",
    "save_deployment",
    "verify_deployment",
]
