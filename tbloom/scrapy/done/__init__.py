"""``TBLOOM_MARK = "done"``: a request is claimed when it is scheduled, and committed when its page is done."""
