"""``TBLOOM_MARK = "done"``: a request is claimed when it is scheduled, and marked when its page is done."""
