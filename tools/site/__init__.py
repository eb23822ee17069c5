"""The settings of the site that `make site` builds of docs/."""
