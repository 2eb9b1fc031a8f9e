"""What AWS asks for, in US dollars: us-east-1, arm64, on demand, without the free tier. Pure.

From the price lists of Amazon S3, AWS Lambda and EMR Serverless.
"""

GET_DOLLARS, PUT_DOLLARS = 0.4e-6, 5e-6
"""A request to S3. A HEAD costs what a GET does, a LIST what a PUT does."""
REQUEST_DOLLARS = {"get": GET_DOLLARS, "head": GET_DOLLARS, "put": PUT_DOLLARS, "list": PUT_DOLLARS}
"""By kind. What is not named, such as a delete, costs nothing."""
LAMBDA_GB_SECOND_DOLLARS = 0.0000133334
EMR_VCPU_HOUR_DOLLARS, EMR_GB_HOUR_DOLLARS = 0.052624, 0.0057785
