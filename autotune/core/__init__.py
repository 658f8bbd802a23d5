"""What everything else is said in: errors, values, problems, candidates, measurements, plans, settings and files."""
