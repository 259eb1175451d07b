/** The highest allowed numbers; 0: no limit. */
export interface Quotas {
  max_instances: number;
  max_instances_per_key: number;
  max_instances_per_meeting: number;
  max_meetings_per_instance: number;
}

export const NO_QUOTAS: Quotas = {
  max_instances: 0,
  max_instances_per_key: 0,
  max_instances_per_meeting: 0,
  max_meetings_per_instance: 0,
};
