"""Discovery: what streams there are, on this host and on others.

Advisory only: an answer says where to ask, and the driver it names decides.
"""
