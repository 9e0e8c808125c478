"""Readings in, alarms out: those above `settings.limit_celsius`, in Fahrenheit as well."""

from pyspark.sql.functions import col


def transform(inputs, context):
    hot = inputs["readings"].where(col("celsius") > context.settings["limit_celsius"])
    return {"alarms": hot.withColumn("fahrenheit", col("celsius") * 9 / 5 + 32)}
