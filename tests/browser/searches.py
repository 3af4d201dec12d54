"""What users search for on the site."""

from __future__ import annotations

#: Words that users search for, and a page that answers.
SEARCHES = {
    "SQLite": "how-to/databases.html",
    "PostgreSQL": "cookbook/files.html",
    "LMDB": "how-to/databases.html",
    "HDF5": "cookbook/files.html",
    "Zarr": "cookbook/files.html",
    "padding": "cookbook/media.html",
    "audio": "cookbook/media.html",
    "strings": "cookbook/structures.html",
    "profile": "how-to/profile-the-workers.html",
    "origins": "how-to/where-samples-come-from.html",
}
