"""Networks made by others: which files they are, and what happens to each of them (docs/gallery.md).

None of the files is part of this project. `networks` reads the list of them, with the SHA-256 of every file.
`python -m tools.gallery FOLDER..` finds the files below folders by their digests, tries each in a process of its own,
and writes the results to results.json, from which the page is generated.
"""
