"""alluvia.operations.changes"""
