"""What stands behind the Ansible plug-ins in playbooks/: few lines each, into act, observe and decide."""
