import{b as r}from"./chunk-Y2I66JSS.js";import{m18 as e}from"./core-VXOLCHDW.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
