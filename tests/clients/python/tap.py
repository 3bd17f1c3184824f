"""Runs the tests of this directory and says of each whether it passed, in the Test Anything Protocol."""

import sys
import unittest


class Tap(unittest.TestResult):
    def addSuccess(self, test):
        super().addSuccess(test)
        print(f"ok {test.id()}", flush=True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.tell(test, self.failures)

    def addError(self, test, err):
        super().addError(test, err)
        self.tell(test, self.errors)

    def tell(self, test, those):
        print(f"not ok {test.id()}", flush=True)
        for line in those[-1][1].splitlines():
            print(f"#   {line}", flush=True)


result = Tap()
unittest.defaultTestLoader.discover(".").run(result)
sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
