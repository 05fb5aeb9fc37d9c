"""What rollouts, clusters and ledgers elsewhere are known to get wrong, each with the test that shows what ours does.

Beside test_rollout_faults.py, which has those with an issue of their own; here is the whole of each field, by where it
is known from. A fault may have several tests.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GONE, LEDGERS, SSH = "test_rollout_slurm_gone", "test_ledger_faults", "test_verification_ssh"

ANSIBLE = {
    "unreachable hosts are not counted by max_fail_percentage (#56265)":
        ["test_rollout_ansible::test_unreachable_nodes_in_every_batch_stop_nothing_in_ansible_and_stop_ours",
         "test_judge::test_verdicts"],
    "any_errors_fatal and an unreachable host: the batch is left in the middle, and the next one begins":
        ["test_rollout_ansible::test_the_rest_of_a_batch_that_lost_half_of_its_nodes_is_finished"],
    "2 of 5 unreachable, and every batch runs (#73795)":
        ["test_rollout_ansible::test_unreachable_nodes_in_every_batch_stop_nothing_in_ansible_and_stop_ours"],
    "a share must be exceeded, so that one more is lost":
        ["test_judge::test_verdicts", "test_gates::test_a_failure_within_the_budget_is_named_and_the_others_go_on",
         "test_gates::test_a_rollout_over_its_budget_stops_at_the_next_batch"],
    "nothing is remembered over batches":
        ["test_rollout_ansible::test_the_failures_of_earlier_batches_and_of_every_kind_count_together"],
    "the share is of the batch, not of the fleet":
        ["test_judge::test_bad_nodes_never_exceed_the_budget_by_more_than_the_batch_in_flight"],
    "a whole failed batch ends the play whatever the budget (#82267)":
        ["test_judge::test_dead_nodes_within_the_budget_do_not_keep_the_others_from_the_target",
         "test_gates::test_a_rollout_that_was_never_begun_or_cut_short_by_ansible_was_stopped"],
    "without max_fail_percentage a rollout goes on past failures":
        ["test_gates::test_a_rollout_over_its_budget_stops_at_the_next_batch"],
    "any_errors_fatal inside of block and rescue: the rollout goes on":
        ["test_rollout_ansible::test_what_is_rescued_fails_all_the_same",
         "test_rollout_ansible::test_no_gate_can_be_skipped_rescued_or_left_to_a_condition"],
    "rescue hides failures":
        ["test_gates::test_a_node_that_was_rescued_is_bad_though_ansible_calls_it_good",
         "test_rollout_ansible::test_the_failures_of_earlier_batches_and_of_every_kind_count_together"],
    "strategies free and host_pinned ignore the limits; a variable in a shell chooses them":
        ["test_rollout_ansible::test_a_strategy_that_is_forced_lets_no_batch_begin_before_the_one_before_it_ended"],
    "a timeout of become counts as unreachable":
        ["test_rollout_ansible::test_no_task_hides_a_failure_from_the_budget"],
    "exit code 4 is an error of the parser as well as an unreachable node, and 4 wins over 2":
        ["../lab/test_demo::test_an_unreachable_node_is_named_and_counted",
         "../lab/test_demo::test_a_broken_node_is_left_out_and_named_and_the_others_are_upgraded"],
    "percentages are of all nodes, floored, and at least one":
        ["test_rollout_policy::test_a_percentage_is_rounded_down_and_is_one_node_at_least"],
    "run_once is once for each batch":
        ["test_rollout_ansible::test_what_runs_once_speaks_for_the_whole_batch_or_asks_only"],
    "a run_once task that fails or finds its delegate unreachable leaves the batch without a word":
        ["test_rollout_slurm_gone::test_a_slurm_that_is_gone_at_the_return_leaves_nodes_drained_and_none_of_them_done",
         "test_rollout_slurm_gone::test_a_controller_machine_that_does_not_answer_holds_up_its_batch_and_is_named"],
    "runs by hand leave no trail": ["test_gates::test_every_step_of_every_node_is_recorded"],
    "reboot reports success without one (#78007, #79992)":
        ["test_rollout_ansible::test_a_reboot_that_is_said_and_was_none_fails_its_node"],
    "a failed drain leaves the node cordoned (kubespray#6545)":
        ["test_slurm_nodes::test_a_job_that_does_not_end_is_named_and_its_node_gets_back_what_it_had"],
    "facts of 150 nodes: five tasks a second (#73654)":
        ["test_rollout_faults::test_no_play_that_changes_nodes_gathers_facts"],
    "five forks; modules that hang (#30411)":
        ["test_rollout_ansible::test_ansible_is_told_what_its_defaults_would_get_wrong",
         "test_rollout_faults::test_every_play_that_changes_nodes_has_a_time_for_each_task"],
    "a default of argument_specs is words only (#80298)":
        ["test_roles::test_defaults_are_the_optional_options_with_their_values"],
    "1.10 becomes 1.1":
        ["test_model_text::test_what_yaml_would_read_otherwise_is_a_fault_at_its_line"],
    "an unknown variable of a role passes in silence (#77159)":
        ["test_roles::test_every_variable_that_a_role_reads_is_an_option_and_every_option_is_read",
         "test_roles::test_what_the_wiring_gives_is_what_roles_ask_for",
         "test_model_environment::test_a_fault_is_told_with_its_line_and_nothing_else"],
    "ranges cannot be said": ["test_rollout_policy::test_a_fault_of_a_policy_is_told_with_its_line"],
    "values in a lock are templates": ["test_lock_document::test_a_wrong_value_is_named_with_its_place"],
    "a condition that is no boolean": ["test_roles::test_ansible_lint_has_nothing_to_say"],
    "templates render otherwise elsewhere than in Ansible":
        ["test_render::test_templates_read_as_ansible_reads_them"],
    "a malformed inventory is a run with no hosts":
        ["test_inventory::test_a_fleet_with_faults_stops_ansible_with_all_of_them",
         "test_rollout_ansible::test_ansible_is_told_what_its_defaults_would_get_wrong"],
    "modules import what no node has":
        ["test_rollout_ansible::test_nothing_that_runs_on_a_node_needs_the_package_that_no_node_has"],
    "testinfra waits for ever, and takes a remote 255 for ssh's (pytest-testinfra#449, #356)":
        [f"{SSH}::test_a_node_that_hangs_is_given_up_and_one_whose_command_ends_with_255_is_not_known"],
    "hundreds of connections at once": ["test_ssh::test_never_more_than_width_nodes_at_once"],
    "host keys are not looked at":
        ["test_inventory::test_only_host_keys_of_the_site_are_trusted",
         "test_rollout_ansible::test_ansible_is_told_what_its_defaults_would_get_wrong"],
    "linear waits for ever on one hung node":
        ["test_rollout_faults::test_every_play_that_changes_nodes_has_a_time_for_each_task"],
    "an exception of a callback is a warning, and the run goes on":
        ["test_gates::test_a_ledger_that_cannot_be_written_ends_the_run"],
    "a worker that is killed, SIGTERM, no power: no statistics, and nobody says what is in doubt":
        ["test_rollout_ansible::test_a_controller_that_is_cut_off_holds_up_nobody_and_its_nodes_are_in_doubt"],
    "kill -9: workers live on": ["test_gates::test_a_killed_controller_whose_workers_still_act_is_named_with_them"],
    "a remote command outlives its controller":
        ["test_node_lock::test_a_take_over_waits_for_the_processes_of_the_ended_rollout"],
    "the same playbook twice in one command":
        ["test_rollout_ansible::test_the_play_twice_in_one_command_changes_no_node_twice"],
    "--tags, --step and --start-at-task skip gates": ["test_gates::test_options_that_could_skip_a_gate_are_refused"],
    "batches shift under --limit":
        ["test_gates::test_a_persons_word_for_a_larger_budget_is_recorded_and_the_limit_holds"],
}  # fmt: skip

SLURM = {
    "upgraded in another order than database, controller, nodes":
        ["test_rules_wiring::test_nodes_are_upgraded_after_their_controllers",
         "test_rules_wiring::test_nodes_wait_while_nobody_knows_what_their_controllers_run",
         "test_rules_wiring::test_controllers_do_not_leave_their_nodes_behind"],
    "taken back a release": ["test_rules_wiring::test_a_rollout_that_takes_slurm_back_a_release_is_refused"],
    "too many releases at once":
        ["test_rules_wiring::test_controllers_of_which_the_ledger_knows_a_release_too_old_to_be_read_are_refused",
         "test_rules::test_controllers_accept_three_earlier_releases_from_24_11_on_and_two_before"],
    "nodes are given up while the controllers change; slurmdbd's conversion is cut off by systemd":
        ["../lab/test_slurm::test_an_upgrade_of_the_controllers_keeps_database_state_and_jobs"],
    "no dump, no way back of the accounting (openhpc#186, #216, #670)":
        ["../lab/test_slurm::test_half_a_dump_upgrades_nothing_and_accounting_goes_on"],
    "a plug-in of another release (spank-plugins#199, pyxis#95)":
        ["test_rules_wiring::test_a_lock_with_a_plug_in_of_another_slurm_is_refused_before_any_node",
         "test_lock::test_a_plug_in_of_another_slurm_is_not_locked",
         "../lab/test_slurm::test_a_plug_in_of_another_slurm_is_refused_before_any_node_changes"],
    "packages that make no user": ["test_slurm_faults::test_slurms_user_is_there_before_packages_that_make_none"],
    "GPUs are detected by what few builds have":
        ["test_slurm_faults::test_a_gpu_that_is_lost_is_missed_and_none_is_looked_for"],
    "slurmd before the fabric":
        ["test_slurm_faults::test_slurmd_starts_after_the_fabric_and_what_keeps_the_gpus_awake"],
    "restarted in the wrong order, or a changed definition: INVALID (openhpc#199)":
        ["test_slurm_faults::test_the_controller_starts_anew_before_the_nodes_hear_of_it",
         "test_slurm_registered::test_a_node_that_no_longer_fits_is_waited_for_and_told_with_slurms_reason"],
    "SlurmdSpoolDir changed below jobs (ansible-slurm-appliance#994)":
        ["test_slurm_faults::test_the_directory_of_running_jobs_is_the_same_in_every_environment"],
    "nodes are rebooted with jobs on them (ansible-slurm-appliance#1018)":
        ["../lab/test_slurm::test_a_change_waits_for_the_job_of_a_node_and_the_job_is_not_harmed",
         "test_slurm_nodes::test_jobs_that_end_are_waited_for"],
    "cores and types are guessed":
        ["test_slurm_conf::test_a_model_without_cores_or_memory_is_named_and_nothing_is_guessed",
         "test_slurm_conf::test_eight_device_files_stand_for_eight_gpus"],
    "7 of 8 GPUs (awsome#195, magic_castle#361)":
        ["../lab/test_slurm::test_a_node_with_seven_of_eight_gpus_gets_no_job_is_named_and_not_given_back",
         "test_slurm_nodes::test_a_node_that_is_not_whole_for_slurm_stays_drained"],
    "after the repair it stays drained; an undrain cancels the drains of others (deepops#804)":
        ["../lab/test_slurm::test_slurms_own_drain_of_a_node_that_lost_a_gpu_is_not_lifted",
         "test_slurm_nodes::test_what_was_drained_here_is_given_back_and_nothing_else",
         "test_slurm_nodes::test_a_reason_that_somebody_set_while_jobs_were_waited_for_stays",
         "test_slurm_nodes::test_a_node_that_a_person_set_down_keeps_its_reason_and_is_not_given_back"],
    "an empty gres.conf, a local slurm.conf (soperator#1192)":
        ["test_slurm_faults::test_what_the_controllers_hand_out_no_node_has_of_its_own"],
    "a firmware update takes a MiB (openhpc#92)":
        ["test_slurm_faults::test_memory_that_a_firmware_update_takes_drains_nobody"],
    "includes are not handed out: jobs run on the host (soperator#2058)":
        ["test_slurm_faults::test_no_line_of_the_plug_in_stack_is_an_include_or_optional",
         "test_rules::test_every_rule_has_a_case_that_it_refuses"],
    "topology.yaml beats topology.conf":
        ["test_slurm_faults::test_what_the_controllers_hand_out_no_node_has_of_its_own",
         "test_slurm_conf::test_each_rack_is_a_leaf_of_the_topology_and_racks_without_nodes_are_none"],
    "a health check lasts longer than Slurm waits, or hangs before registration (nhc#159)":
        ["test_health_drain_script::test_all_that_may_hang_hangs_for_less_than_slurm_waits",
         "test_health_drain_script::test_a_reason_that_is_somebodys_or_that_nobody_could_read_stays"],
    "Slurm's commands in a prolog":
        ["test_slurm_faults::test_no_prolog_epilog_or_check_asks_slurm_anything"],
    "a boot of eight GPUs is given up after 60 s": ["test_slurm_conf::test_a_boot_of_eight_gpus_is_waited_for"],
    "a node is idle before its check ran after a boot (nhc#81, #115, #84)":
        ["test_slurm_faults::test_a_node_that_booted_by_itself_is_not_used_again_until_somebody_looked",
         "test_slurm_faults::test_nobody_lets_slurm_reboot_a_node_into_service"],
    "a node is schedulable before it is validated (NVSentinel#1427, #695)":
        ["test_rollout_faults::test_a_node_is_verified_before_it_is_given_back",
         "test_rollout_answers::test_a_node_that_answers_wrongly_stays_out_is_counted_and_named_and_the_others_go_on"],
    "sinfo cuts reasons and doubles columns": ["test_slurm_faults::test_nobody_reads_tables_that_slurm_cuts"],
    "a Slurm that hangs: whole batches drained (nhc#161)":
        ["test_slurm_nodes::test_a_slurm_that_hangs_is_told_and_nothing_is_sent_to_it"],
    "stalls flap drain and resume (nhc#95)":
        ["test_health_drains::test_stalls_that_come_and_go_neither_drain_nor_return_a_node"],
    "plug-in and slurmd in two transactions":
        ["test_slurm_faults::test_plug_in_and_runtime_are_there_before_slurmd_and_come_in_one_transaction_with_it"],
    "the micro of a release is compared, or its minor is not":
        ["test_elf::test_the_release_is_major_and_minor_and_the_micro_is_free"],
    "an optional plug-in: the job runs on the host":
        ["test_slurm_faults::test_no_line_of_the_plug_in_stack_is_an_include_or_optional",
         "../lab/test_slurm::test_jobs_of_two_nodes_print_the_os_release_of_their_image"],
    "a word that Pyxis does not know keeps it from loading":
        ["test_slurm_conf::test_pyxis_asks_the_importer_where_it_knows_of_one_and_the_environment_has_it"],
    "--container-name of a container that is there: the image is ignored":
        ["test_slurm_faults::test_a_container_name_of_another_job_is_nobodys_image"],
    "the importer: one path on stdout, release twice, runs as the user":
        ["test_pyxis_importer::test_release_is_called_twice_and_takes_nothing_away",
         "test_pyxis_importer::test_no_other_text_is_ever_answered"],
    "an image that is not the pinned one":
        ["test_pyxis_importer::test_a_file_that_is_not_the_hashed_one_starts_no_job"],
    "KEY=value in enroot.conf":
        ["test_slurm_faults::test_enroots_configuration_is_keys_and_values_without_an_equals_sign"],
    "one directory for many users or nodes (enroot#154, aws-samples#20)":
        ["test_slurm_faults::test_every_user_has_directories_of_their_own_and_none_on_a_share",
         "../lab/test_slurm::test_prologs_make_enroots_directories_for_the_user_alone"],
    "too little room, NFS or Lustre (pyxis#41, #53, enroot#83, #30)":
        ["../lab/test_slurm::test_a_node_that_could_run_no_image_is_refused_with_the_way_to_mend_it",
         "test_enroot_preflight::test_the_nearest_directory_that_exists_is_asked"],
    "the controllers are gone":
        ["../lab/test_slurm::test_without_controllers_nothing_begins",
         "test_rollout_slurm_gone::test_a_slurm_that_is_gone_at_the_drain_leaves_the_batch_as_it_was",
         f"{GONE}::test_the_same_command_goes_on_and_gives_back_what_rollouts_drained_and_nothing_else"],
}  # fmt: skip

LEDGER = {
    "a tail that was cut off verifies (hyprstream#679)":
        ["test_ledger_damage::test_damage_to_the_file_is_named",
         "test_ledger_anchor::test_a_tail_that_was_cut_off_is_named_against_the_last_anchor"],
    "two writers fork the chain":
        ["test_ledger::test_concurrent_processes_never_fork_the_chain_and_lose_nothing",
         "test_ledger_postgresql::test_eight_processes_never_fork_the_chain_and_lose_nothing"],
    "a torn record is glued to the next (elizaOS#30878)":
        ["test_ledger_faults::test_an_anchor_that_lost_its_end_is_not_glued_to_the_next",
         "test_ledger_damage::test_damage_to_an_export_is_named",
         "test_ledger::test_a_writer_killed_at_any_moment_leaves_whole_transactions_and_a_usable_ledger"],
    "appends of more than 512 KiB are split (penguin-harness#249)":
        ["test_ledger_faults::test_records_of_megabytes_are_whole_whoever_appends_at_once"],
    "a bad record in the middle is skipped (TemporalStore#527)":
        ["test_ledger_faults::test_a_bad_event_in_the_middle_is_damage_and_no_state_is_made_of_the_others",
         "test_ledger::test_nothing_is_built_on_a_damaged_head"],
    "a chain without a key is made anew from its first record (darbaan#246)":
        ["test_ledger_anchor::test_a_history_rewritten_to_its_end_is_named_and_gets_no_new_anchor",
         "test_ledger_damage::test_damage_to_the_file_is_named"],
    "a way back drops what was staged (bootc#1418)":
        ["test_ledger_faults::test_a_way_back_forgets_nothing_of_what_it_left",
         "test_distribution::test_a_node_keeps_what_it_runs_ran_is_to_run_and_may_be_asked_to_run"],
    "a way back goes to the wrong one (bootc#946)":
        [f"{LEDGERS}::test_a_way_back_without_a_name_goes_to_what_nodes_ran_and_not_to_what_they_failed_to_reach"],
    "a status the other way round (bootc#2405)":
        ["test_ledger_faults::test_every_node_of_the_fleet_has_a_state_and_none_is_the_other_way_round",
         "test_ledger_faults::test_a_node_that_is_bad_names_the_rollout_the_step_and_what_it_ran_before"],
    "resume believes the record and not the node (nodewright#633)":
        ["test_plan::test_nodes_in_doubt_come_first_then_bad_ones_with_one_fresh_node",
         "test_fold::test_a_passing_verification_does_not_mend_a_failed_change",
         "test_rollout_admission::test_a_node_is_left_at_once_only_as_it_was_proven"],
    "a threshold that is ignored past half of the nodes (nodewright#592)":
        ["test_judge::test_bad_nodes_never_exceed_the_budget_by_more_than_the_batch_in_flight"],
    "nobody knows whether a boot would change a node (warewulf#2226)":
        ["test_rollout_prospect::test_nodes_boot_for_another_kernel_driver_or_command_line_and_for_nothing_else",
         "test_drift_command::test_nodes_with_the_same_drift_are_one_row_grouped_by_layer"],
    "mixed versions are not seen (soperator#184)":
        ["test_drift_command::test_nodes_with_the_same_drift_are_one_row_grouped_by_layer",
         "test_ledger_projection::test_who_runs_an_environment_now_and_then"],
    "documents say something else than the program (soperator)":
        ["../docs/test_docs::test_the_page_of_commands_is_what_the_commands_say",
         "../docs/test_roles_pages::test_the_pages_of_roles_are_what_the_roles_say"],
    "one pin in three places (deepops)":
        ["test_lab_site::test_no_version_of_a_package_is_in_the_table_twice",
         "test_roles::test_what_the_wiring_gives_is_what_roles_ask_for"],
    "checks that skip a node leave nothing (OCI)":
        ["test_verification::test_every_node_that_was_asked_for_has_a_verdict_and_no_other",
         "test_health_fleet::test_every_node_has_a_row_whatever_becomes_of_it"],
    "append-only by custom": ["test_ledger::test_sqlite_itself_refuses_what_does_not_append",
                              "test_ledger_postgresql::test_the_server_itself_refuses_what_does_not_append"],
    "placeholders and untyped values":
        ["test_ledger::test_sqlite_itself_refuses_a_row_of_another_form",
         "test_lock_document::test_what_is_no_digest_never_passes_as_one"],
    "a retry writes over what it retries":
        ["test_gates::test_the_same_command_after_a_kill_finishes_without_touching_what_was_finished",
         "test_fold::test_a_rollout_is_what_its_events_say"],
    "the record does not say what was left": ["test_ledger_faults::test_a_way_back_forgets_nothing_of_what_it_left",
                                              "test_equality::test_a_failed_return_is_not_equal_to_what_it_was"],
    "a node that was never seen has no state":
        ["test_ledger_faults::test_every_node_of_the_fleet_has_a_state_and_none_is_the_other_way_round"],
    "one digest stands for another": ["test_lock::test_a_lock_takes_the_image_from_its_build_record"],
    "records without a number of their form": ["test_ledger::test_a_newer_schema_is_refused",
                                               "test_ledger_damage::test_damage_to_an_export_is_named"],
    "who ran what when, what differs, why":
        ["test_ledger_projection::test_at_a_time_each_node_ran_what_the_events_up_to_then_say",
         "test_ledger_projection::test_explain_tells_the_chain_of_events",
         "test_diff::test_one_change_is_one_difference_in_its_layer"],
}  # fmt: skip

SURVIVAL = {
    "kill -9 of the controller at any step":
        ["test_rollout_ansible::test_a_controller_that_is_killed_at_every_step_arrives_in_the_end",
         "test_gates::test_the_same_command_after_a_kill_finishes_without_touching_what_was_finished",
         "test_rollout_seeded::test_no_weather_and_no_kill_breaks_more_than_the_budget_and_the_batch_in_flight",
         "../lab/test_demo::test_a_rollout_that_was_killed_goes_on_with_its_nodes_in_doubt"],
    "a reboot of the controller":
        ["test_rollout_ansible::test_a_controller_that_is_cut_off_holds_up_nobody_and_its_nodes_are_in_doubt"],
    "network loss to half of a batch":
        ["test_rollout_ansible::test_the_rest_of_a_batch_that_lost_half_of_its_nodes_is_finished",
         "test_rollout_ansible::test_the_same_command_goes_on_when_the_network_is_back",
         "../lab/test_demo::test_an_unreachable_node_is_named_and_counted"],
    "Slurm's controller is down":
        ["test_rollout_slurm_gone::test_a_slurm_that_is_gone_at_the_drain_leaves_the_batch_as_it_was",
         "test_rollout_slurm_gone::test_a_slurm_that_is_gone_at_the_return_leaves_nodes_drained_and_none_of_them_done",
         "test_rollout_slurm_gone::test_the_same_command_goes_on_and_gives_back_what_rollouts_drained_and_nothing_else",
         "../lab/test_slurm::test_without_controllers_nothing_begins"],
    "registry or archive is down":
        ["test_gates::test_what_archive_or_registry_lack_is_refused",
         "test_lock::test_an_archive_that_is_gone_is_a_fault_of_verification",
         "test_lock::test_a_registry_that_lost_the_image_is_a_fault_of_verification",
         "test_apt::test_an_archive_that_does_not_answer_is_unreachable"],
    "the disk of the ledger is full":
        ["test_ledger::test_a_full_disk_records_nothing_and_the_ledger_goes_on_when_there_is_space",
         "test_ledger::test_a_file_system_without_space_records_nothing",
         "test_gates::test_a_ledger_that_cannot_be_written_ends_the_run"],
    "the disk of a node is full":
        ["test_rollout_ansible::test_a_node_without_space_says_so",
         "../lab/test_lab::test_a_full_disk_takes_no_package_and_no_image"],
    "two operators at once":
        ["test_gates::test_a_second_rollout_while_one_runs_is_refused_with_who_and_since",
         "test_node_lock::test_two_controllers_cannot_both_find_it_free",
         "../lab/test_demo::test_a_second_rollout_while_one_runs_is_refused_with_who_and_since_when"],
    "the clock jumps":
        ["test_rollout_faults::test_a_clock_that_was_set_back_or_forth_makes_no_soak_longer_or_shorter_than_the_policys",
         "test_ledger_faults::test_a_clock_that_jumps_changes_the_order_of_nothing",
         "test_ledger_projection::test_a_clock_that_went_back_is_said"],
}  # fmt: skip

EVERY = [
    (field, fault, test)
    for field, faults in (("ansible", ANSIBLE), ("slurm", SLURM), ("ledger", LEDGER), ("survival", SURVIVAL))
    for fault, tests in faults.items()
    for test in tests
]


@pytest.mark.parametrize(("field", "fault", "test"), EVERY)
def test_every_known_fault_has_its_tests(field: str, fault: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(file), f"{field}: {fault}: no test {name} in {file}.py"


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
