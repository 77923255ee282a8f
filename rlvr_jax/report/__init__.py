"""The report: a workdir as one self-contained page, made of parts."""
