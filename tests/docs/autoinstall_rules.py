"""docs/autoinstall-lint.md, from its rules: python tests/docs/autoinstall_rules.py > docs/autoinstall-lint.md"""

from bedplate.decide.autoinstall.rules import page

if __name__ == "__main__":
    print(page(), end="")
