"""alluvia.operations.merge_query"""
