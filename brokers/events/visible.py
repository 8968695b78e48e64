"""Text that a terminal does not act on, for the log and, by way of `brokers.redaction`, for errors and output."""


def visible(text: str) -> str:
    """Return a text with escapes for characters that a terminal would act on or not show."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
