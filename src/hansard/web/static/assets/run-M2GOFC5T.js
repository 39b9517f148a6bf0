import{b as r}from"./chunk-MMH6PO5E.js";import{m18 as e}from"./core-OOLPFGGO.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
