"""Replay on a cluster: a script for spark-submit, with the arguments of `soapjms replay`.

    spark-submit --master yarn --py-files soapjms-*-py3-none-any.whl examples/replay_on_spark.py \\
        replay hdfs:///captures --out /shared/report
"""

from soapjms.cli import main

if __name__ == "__main__":
    main()
