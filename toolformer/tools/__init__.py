"""The tools of the paper's section 3, one file each, behind one protocol (`base.Tool`)."""
