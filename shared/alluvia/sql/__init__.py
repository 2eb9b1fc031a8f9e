"""SQL that reads and writes: texts to statements, and statements to the operations of a lake and its tables."""
