"""The settings of the site that `make site` builds from docs/."""
