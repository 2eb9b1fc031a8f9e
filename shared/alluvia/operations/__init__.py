"""What can be done with a table. Each module plans in a pure function and executes the plan."""
