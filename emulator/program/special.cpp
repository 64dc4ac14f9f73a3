#include "program/special.h"

#include <unordered_map>

namespace ladder::program {

std::optional<Special> special_from_name(std::string_view name) {
  static const std::unordered_map<std::string_view, Special> kNames = {
      {"%tid.x", Special::tid_x},
      {"%tid.y", Special::tid_y},
      {"%tid.z", Special::tid_z},
      {"%ntid.x", Special::ntid_x},
      {"%ntid.y", Special::ntid_y},
      {"%ntid.z", Special::ntid_z},
      {"%ctaid.x", Special::ctaid_x},
      {"%ctaid.y", Special::ctaid_y},
      {"%ctaid.z", Special::ctaid_z},
      {"%nctaid.x", Special::nctaid_x},
      {"%nctaid.y", Special::nctaid_y},
      {"%nctaid.z", Special::nctaid_z},
      {"%laneid", Special::laneid},
      {"%warpid", Special::warpid},
      {"%nwarpid", Special::nwarpid},
      {"%smid", Special::smid},
      {"%nsmid", Special::nsmid},
      {"%gridid", Special::gridid},
      {"%lanemask_eq", Special::lanemask_eq},
      {"%lanemask_le", Special::lanemask_le},
      {"%lanemask_lt", Special::lanemask_lt},
      {"%lanemask_ge", Special::lanemask_ge},
      {"%lanemask_gt", Special::lanemask_gt},
      {"%clock", Special::clock},
      {"%clock_hi", Special::clock_hi},
      {"%clock64", Special::clock64},
      {"%globaltimer", Special::globaltimer},
      {"%globaltimer_lo", Special::globaltimer_lo},
      {"%globaltimer_hi", Special::globaltimer_hi},
      {"%dynamic_smem_size", Special::dynamic_smem_size},
      {"%total_smem_size", Special::total_smem_size},
      {"%aggr_smem_size", Special::aggr_smem_size},
      {"%reserved_smem_offset_begin", Special::reserved_smem_offset_begin},
      {"%reserved_smem_offset_end", Special::reserved_smem_offset_end},
      {"%reserved_smem_offset_cap", Special::reserved_smem_offset_cap},
      {"%reserved_smem_offset_0", Special::reserved_smem_offset_0},
      {"%reserved_smem_offset_1", Special::reserved_smem_offset_1},
      {"%envreg1", Special::envreg1},
      {"%envreg2", Special::envreg2},
      {"%cluster_ctaid.x", Special::cluster_ctaid_x},
      {"%cluster_ctaid.y", Special::cluster_ctaid_y},
      {"%cluster_ctaid.z", Special::cluster_ctaid_z},
      {"%cluster_nctaid.x", Special::cluster_nctaid_x},
      {"%cluster_nctaid.y", Special::cluster_nctaid_y},
      {"%cluster_nctaid.z", Special::cluster_nctaid_z},
      {"%cluster_ctarank", Special::cluster_ctarank},
      {"%cluster_nctarank", Special::cluster_nctarank},
      {"%is_explicit_cluster", Special::is_explicit_cluster},
      {"%clusterid.x", Special::clusterid_x},
      {"%clusterid.y", Special::clusterid_y},
      {"%clusterid.z", Special::clusterid_z},
      {"%nclusterid.x", Special::nclusterid_x},
      {"%nclusterid.y", Special::nclusterid_y},
      {"%nclusterid.z", Special::nclusterid_z},
  };
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

bool is_zero_special(std::string_view name) {
  if (name == "%current_graph_exec")
    return true;
  constexpr std::string_view kEnvironment = "%envreg";
  if (!name.starts_with(kEnvironment))
    return false;
  name.remove_prefix(kEnvironment.size());
  if (name.empty() || name.size() > 2)
    return false;
  int number = 0;
  for (char c : name) {
    if (c < '0' || c > '9')
      return false;
    number = number * 10 + (c - '0');
  }
  return number < 32;
}

} // namespace ladder::program
