"""A receipt as one HTML page that runs the program again in the reader's browser."""

from cvm.receipt_page.page import page

__all__ = ["page"]
