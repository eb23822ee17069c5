"""Timing programs: executors and other engines, each in a process of its own, by turns."""
