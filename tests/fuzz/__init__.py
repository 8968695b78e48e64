"""The generative attack tests: what a hostile peer may send, changed by chance; `make fuzz` runs them.

`rows` is the table of them, one file each. A case is made of its seed alone, and `running` carries it out.
"""
