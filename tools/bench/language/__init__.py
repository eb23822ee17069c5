"""Language models on cvm and on other engines: the same weights, in every form that an engine reads."""
