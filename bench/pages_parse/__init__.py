"""Product pages read: mistnet beside extruct and beside a bare lxml parse."""
