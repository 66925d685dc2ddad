"""The tools of the paper's section 3, one file each, with one base class (`base.Tool`)."""
