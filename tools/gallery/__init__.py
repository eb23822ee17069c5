"""Networks of others: which files they are, and what happens to each of them (docs/gallery.md).

None of the files is part of this project. `networks` reads the list of them, with the SHA-256 of every file;
`python -m tools.gallery FOLDER..` finds the files by their digests below folders, tries each in a process of its own,
and writes what it found to results.json, from which the page is generated.
"""
