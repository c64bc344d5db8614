"""One kernel on one call: made, called, judged; and which calls always."""
